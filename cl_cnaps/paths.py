"""Where things are kept on this machine; the only place that reads the environment for folders."""

from __future__ import annotations

import os
from pathlib import Path

from cl_cnaps.errors import BadInputError, foreign


def data_root() -> Path:
    """Images: `$CL_CNAPS_DATA`, else the user's data folder."""
    chosen = os.environ.get("CL_CNAPS_DATA")
    return user_path(chosen) if chosen else _home("XDG_DATA_HOME", ".local/share") / "data"


def cache_root() -> Path:
    """What can be deleted and made again: `$CL_CNAPS_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("CL_CNAPS_CACHE")
    return user_path(chosen) if chosen else _home("XDG_CACHE_HOME", ".cache")


def weights_root() -> Path:
    """Weight files a person imported or trained: `$CL_CNAPS_WEIGHTS`, else the user's data folder."""
    chosen = os.environ.get("CL_CNAPS_WEIGHTS")
    return user_path(chosen) if chosen else _home("XDG_DATA_HOME", ".local/share") / "weights"


def user_path(text: str) -> Path:
    """Return a path that a person typed, `~` resolved; an empty one, as of an unset variable, is refused."""
    if not text.strip():
        raise BadInputError("a path is empty: is a variable of the shell not set?")
    with foreign(text, "not a path"):
        return Path(text).expanduser()


def _home(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / fallback) / "cl-cnaps"
