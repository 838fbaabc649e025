"""Where images come from: folders, zips, torchvision's sets and Meta-Dataset records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cl_cnaps.data.registry import open_source
from cl_cnaps.data.source import Source

if TYPE_CHECKING:
    from cl_cnaps.data.packing import packed

__all__ = ["Source", "open_source", "packed"]


def __getattr__(name: str) -> Any:
    """Load the packed cache when it is first used."""
    if name != "packed":
        raise AttributeError(name)
    from cl_cnaps.data.packing import packed

    return packed
