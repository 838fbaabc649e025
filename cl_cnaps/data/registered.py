"""A person's own sources, registered under a name in the data root's sources.json."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from cl_cnaps.data.atomic import locked, write_text
from cl_cnaps.data.catalog import known_set
from cl_cnaps.errors import BadInputError, ClCnapsError, foreign, reason
from cl_cnaps.untrusted import read_json

FILE = "sources.json"


def registered(root: Path) -> dict[str, Path]:
    """Name -> folder, zip or records folder, of everything registered."""
    file = root / FILE
    if not os.path.lexists(file):
        return {}
    entries = read_json(file)
    with foreign(str(file), "damaged; mend or remove it"):
        return {str(name): Path(path) for name, path in entries.items()}


def check_name(name: str) -> None:
    """Refuse what would hide a published set or could not be written in a command."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise BadInputError(f"{name!r} cannot be a name: use letters, digits, and . _ - after the first")
    if known_set(name) is not None:
        raise BadInputError(f"{name} is the name of a published data set; choose another")


def register(name: str, path: Path, root: Path, *, replace: bool = False) -> None:
    """Note that `name` means what is at `path`."""
    check_name(name)
    try:
        with locked(root / FILE):  # of two that register at once, neither may write over the other's
            entries = registered(root)
            if name in entries and not replace:
                raise BadInputError(
                    f"{name} is registered already, as {entries[name]}; choose another or use --replace"
                )
            entries[name] = path.resolve()
            text = json.dumps({entry: str(entries[entry]) for entry in sorted(entries)}, indent=2) + "\n"
            write_text(root / FILE, text)
    except OSError as error:
        raise ClCnapsError(
            f"{root / FILE} cannot be written ({reason(error)}). Set CL_CNAPS_DATA to a folder of yours, or "
            f"name the images as folder:{path} where a source is asked for"
        ) from error
