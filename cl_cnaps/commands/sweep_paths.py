"""Paths in the options of runs that other machines compute: given from the root, they mean the same in any folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cl_cnaps.errors import BadInputError

if TYPE_CHECKING:
    from cl_cnaps.sweeps.recipe import Options, Scalar

_FILES = ("weights", "backbone-weights", "specs")
"""Options whose value is a path, a name, or ROW=PATH."""
_SOURCES = ("folder:", "records:")
"""What stands before a path in the name of a source."""


def from_root(options: Options) -> Options:
    """The options of a run with each path that is there from this folder given from the root; others are refused."""
    return {
        name: tuple(_from_root(name, one) for one in value)
        if isinstance(value, tuple)
        else _from_root(name, value)
        for name, value in options.items()
    }


def _from_root(name: str, value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    if name not in _FILES:
        return ",".join(map(_source, value.split(",") if name == "sources" else [value]))
    if Path(value).exists():
        before, path = "", value
    else:
        row, equals, path = value.partition("=")
        before, path = (f"{row}=", path) if equals and "/" not in row else ("", value)
    # As `find_weights` tells a path from a name.
    is_name = name == "weights" and "/" not in path and not path.endswith(".safetensors")
    if is_name or path in ("auto", "random", "none"):
        return value
    return f"{before}{_absolute(path, name)}"


def _source(text: str) -> str:
    for kind in _SOURCES:
        if text.startswith(kind):
            return f"{kind}{_absolute(text.removeprefix(kind), text)}"
    return text


def _absolute(path: str, where: str) -> str:
    if path.startswith(("/", "~")):
        return path
    if not Path(path).exists():
        raise BadInputError(
            f"{where}: there is no {path} in this folder. Nodes of a cluster have folders of their own: give the path "
            "from the root, as every node has it"
        )
    return str(Path(path).absolute())
