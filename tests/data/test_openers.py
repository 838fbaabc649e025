"""Data sets that a person's own code opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cl_cnaps.data import open_source, openers
from cl_cnaps.data.arrays import ArraySource, LabelledPixels
from cl_cnaps.data.listing import listing
from cl_cnaps.data.openers import source
from cl_cnaps.errors import BadInputError, MissingDataError


def read() -> dict[str, LabelledPixels]:
    return {"all": LabelledPixels(np.zeros((6, 5, 5), dtype=np.uint8), np.arange(6) % 2)}


def squares() -> ArraySource:
    return ArraySource("squares", "made up", read, ("black", "white"))


@pytest.fixture(autouse=True)
def registry_as_it_was() -> Iterator[None]:
    before = dict(openers.OPENERS)
    yield
    openers.OPENERS.clear()
    openers.OPENERS.update(before)


def test_it_is_opened_and_listed_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no data set called 'squares'"):
        open_source("squares", root=tmp_path)
    assert source("squares")(squares) is squares
    found = open_source("squares", root=tmp_path)
    assert (found.classes("all"), found.count("all", "white"), found.origin) == (
        ("black", "white"),
        3,
        "made up",
    )
    rows = {row.name: row for row in listing(tmp_path)}
    assert rows["squares"].splits == {"all": (2, 6)}
    with pytest.raises(MissingDataError, match="Registered: squares"):
        open_source("circles", root=tmp_path)


def test_names_that_would_mislead_are_refused(tmp_path: Path) -> None:
    source("squares")(squares)
    with pytest.raises(BadInputError, match="called 'squares' already"):
        source("squares")(squares)
    with pytest.raises(BadInputError, match="name of a published data set"):
        source("CIFAR-10")(squares)
    with pytest.raises(BadInputError, match="cannot be a name"):
        source("folder:squares")(squares)
    source("circles")(squares)
    with pytest.raises(BadInputError, match="registered as 'circles' calls itself 'squares'"):
        open_source("circles", root=tmp_path)
