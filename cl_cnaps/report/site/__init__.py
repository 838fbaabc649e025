"""A site of static pages from run records: tables, charts, and a page for each record."""

from cl_cnaps.report.site.gather import gather
from cl_cnaps.report.site.site import showable, write_site

__all__ = ["gather", "showable", "write_site"]
