"""Where things are kept on this machine, and files from elsewhere: paths that stay below a root, reads that end.

Nothing else reads the environment for folders.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from cl_cnaps.errors import BadInputError, MissingDataError, foreign

MAX_FILE_BYTES = 2**29
"""Largest file that is read whole: twice the largest of any known set."""

MAX_TEXT_BYTES = 2**26
"""Largest recipe or specification that is read: ImageNet's specification has 2 MB."""


def data_root() -> Path:
    """Images: `$CL_CNAPS_DATA`, else the user's data folder."""
    chosen = os.environ.get("CL_CNAPS_DATA")
    return user_path(chosen) if chosen else _home("XDG_DATA_HOME", ".local/share") / "data"


def cache_root() -> Path:
    """Return the folder of what can be deleted and made again: `$CL_CNAPS_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("CL_CNAPS_CACHE")
    return user_path(chosen) if chosen else _home("XDG_CACHE_HOME", ".cache")


def weights_root() -> Path:
    """Weight files that were imported or trained: `$CL_CNAPS_WEIGHTS`, else the user's data folder."""
    chosen = os.environ.get("CL_CNAPS_WEIGHTS")
    return user_path(chosen) if chosen else _home("XDG_DATA_HOME", ".local/share") / "weights"


def specs_root() -> Path | None:
    """Return the folder of official Meta-Dataset specifications, if `$CL_CNAPS_SPECS` names one."""
    chosen = os.environ.get("CL_CNAPS_SPECS")
    return user_path(chosen) if chosen else None


def user_path(text: str) -> Path:
    """Return a path that a user typed, `~` resolved; an empty one, as of an unset variable, is refused."""
    if not text.strip():
        raise BadInputError("a path is empty: is a variable of the shell not set?")
    with foreign(text, "not a path"):
        return Path(text).expanduser()


def _home(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / fallback) / "cl-cnaps"


def below(root: Path, name: str) -> Path:
    """Return the path of `name` below `root`; a name that leads elsewhere on any system is refused."""
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    if (
        not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or windows.drive
        or "\\" in name
        or "\0" in name
    ):
        raise BadInputError(f"{name!r} cannot be the name of a file or folder below {root}: choose another")
    return root / path


def read_file(path: Path, most: int = MAX_FILE_BYTES, *, size: int | None = None) -> bytes:
    """Return the content of a file, or its first `size` bytes.

    Refused are files of more than `most` bytes, and pipes and devices, which may never end.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{path} is a folder, pipe or device, not a file that can be read")
        if size is None and status.st_size > most:
            raise BadInputError(f"{path} has {status.st_size:,} bytes; at most {most:,} are read")
        with path.open("rb") as file:
            return file.read(most if size is None else size)
    except OSError as error:
        raise MissingDataError(f"{path} cannot be read ({error.strerror})") from error


def read_text(path: Path) -> str:
    """Return the content of a text file."""
    content = read_file(path, MAX_TEXT_BYTES)
    with foreign(str(path), "not a text file in UTF-8"):
        return content.decode()


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    content = read_file(path, MAX_TEXT_BYTES)
    with foreign(str(path), "not a JSON file"):
        return json.loads(content)
