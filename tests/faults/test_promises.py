"""docs/reliability.md names the test of every promise, and every test of this folder; SECURITY.md the image formats."""

from __future__ import annotations

import re
from pathlib import Path

from cl_cnaps.data.source import FORMATS

FAULTS = Path(__file__).parent
PAGE = (FAULTS.parents[1] / "docs" / "reliability.md").read_text()


def test_every_test_is_named_and_every_name_is_a_test() -> None:
    here = {file.name for file in FAULTS.glob("test_*.py")} - {Path(__file__).name}
    assert set(re.findall(r"test_\w+\.py", PAGE)) == here
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert rows
    assert all(re.search(r"`test_\w+\.py` \|$", row) for row in rows)


def test_the_formats_are_those_that_are_opened() -> None:
    text = (FAULTS.parents[1] / "SECURITY.md").read_text()
    (listed,) = re.findall(r"decoded by Pillow, as (.*), whatever a file is called", text)
    assert re.findall(r"[A-Z]+", listed.replace(" (with MPO)", "")) == list(FORMATS)
