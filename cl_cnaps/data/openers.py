"""Sources that a person's own code opens, for images that lie neither in folders nor in records."""

from __future__ import annotations

from collections.abc import Callable

from cl_cnaps.data.registered import check_name
from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import BadInputError

Opener = Callable[[], CountedSource]

OPENERS: dict[str, Opener] = {}
"""By the name of the source that they open."""


def source(name: str) -> Callable[[Opener], Opener]:
    """Register a function that opens the source of this name, for `open_source` and the command line."""

    def register(opener: Opener) -> Opener:
        check_name(name)
        if name in OPENERS:
            raise BadInputError(f"there is a data set called {name!r} already")
        OPENERS[name] = opener
        return opener

    return register


def opened(name: str) -> CountedSource:
    """What the function registered under this name opens."""
    found = OPENERS[name]()
    if found.name != name:  # records and the cache know images by their source's name
        raise BadInputError(f"the data set registered as {name!r} calls itself {found.name!r}")
    return found
