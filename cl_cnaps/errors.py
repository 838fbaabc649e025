"""Errors that a user can act on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 4000  # characters of a message: what a file holds may be quoted in it


class ClCnapsError(Exception):
    """A request cannot be carried out.

    The message names the thing, what was found, and, where there is one, the cure. The command line prints
    it without a traceback.
    """

    def __str__(self) -> str:
        return printable(str(self.args[0])) if self.args else ""


class BadInputError(ClCnapsError, ValueError):
    """Numbers handed to a function are not what it can work on: wrong shape, empty, NaN, out of range."""


class MissingDataError(ClCnapsError, FileNotFoundError):
    """Images, weights or records that are needed are not where they were looked for."""


@contextmanager
def foreign(where: str, problem: str = "damaged") -> Iterator[None]:
    """Turn whatever a library raises on bytes from elsewhere into one error: `where`: `problem` (the reason)."""
    try:
        yield
    except ClCnapsError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # where it was to be written, nothing of the bytes
            raise
        raise BadInputError(f"{where}: {problem} ({reason(error)})") from error
    except Exception as error:  # parsers raise nearly anything on damaged or hostile bytes
        raise BadInputError(f"{where}: {problem} ({reason(error)})") from error


def reason(error: BaseException) -> str:
    """Return the first line of what an exception reports, or its kind where it reports nothing."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.strip().partition("\n")[0] or type(error).__name__


def printable(text: str) -> str:
    """Return the text, cut if it is very long, with everything escaped that a terminal would obey."""
    return escaped(shortened(text, _LONGEST))


def shortened(text: str, longest: int = 800) -> str:
    """Return the beginning and the end of a long text: what was given may be quoted in it."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def escaped(text: str) -> str:
    """Return the text with everything escaped that a terminal would obey or could not show, but line ends."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text
    )
