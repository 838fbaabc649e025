"""The last line of defence: an error that nobody foresaw ends in one line, and its traceback in a file."""

from __future__ import annotations

import hashlib
import platform
import sys
import traceback

from cl_cnaps import __version__
from cl_cnaps.errors import reason
from cl_cnaps.paths import cache_root


def crash_line(error: BaseException) -> str:
    """Write the traceback to a log file and return the line that names it.

    The code is a digest of the kind of error and of where it was raised: the same fault has the same code everywhere.
    """
    frames = traceback.extract_tb(error.__traceback__)
    here = [f"{frame.name} {frame.line}" for frame in frames if "cl_cnaps" in frame.filename]
    code = hashlib.sha256(repr((type(error).__name__, here)).encode()).hexdigest()[:6]
    file = cache_root() / "logs" / f"crash-{code}.txt"
    text = "\n".join(
        (
            f"cl-cnaps {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"arguments: {sys.argv[1:]!r}",
            *traceback.format_exception(error),
        )
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        where = f"its traceback is in {file}; please report it with that file"
    except OSError:
        where = f"{file} could not be written: repeat the command as `cl-cnaps --debug ...` and report what it prints"
    return f"unforeseen {type(error).__name__} ({reason(error)}), code {code}: {where}"
