"""A site of static pages from run records: tables, charts, and a page for each record."""

from cl_cnaps.results.report.gather import gather
from cl_cnaps.results.report.site import write_site
from cl_cnaps.results.report.trial import sound

__all__ = ["gather", "sound", "write_site"]
