"""Where images come from: folders, zips, torchvision's sets and Meta-Dataset records."""

from cl_cnaps.data.packing import packed
from cl_cnaps.data.registry import open_source
from cl_cnaps.data.source import Source

__all__ = ["Source", "open_source", "packed"]
