"""The error a person can act on."""

from __future__ import annotations


class ClCnapsError(Exception):
    """Something the caller asked for cannot be done.

    The message names the thing, what was found, and, where there is one, what mends it. The command line prints
    it without a traceback.
    """


class BadInputError(ClCnapsError, ValueError):
    """Numbers handed to a function are not what it can work on: wrong shape, empty, NaN, out of range."""


class MissingDataError(ClCnapsError, FileNotFoundError):
    """Images, weights or records that were asked for are not where they were looked for."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
