"""A site of static pages from run records: tables, charts, and a page for each record."""

from cl_cnaps.report.site.gather import gather
from cl_cnaps.report.site.site import write_site
from cl_cnaps.report.site.trial import showable

__all__ = ["gather", "showable", "write_site"]
