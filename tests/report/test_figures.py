"""The figures that pages show are of the records that are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report.editing import editable

from cl_cnaps.records.record import read_record
from cl_cnaps.report.figures import FIGURES, draw_all, stale

ROOT = Path(__file__).parents[2]


def test_committed_figures_are_of_the_committed_records() -> None:
    assert stale(ROOT / "results") == [], "run python -m cl_cnaps.report.figures results"
    pages = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert [name for name in FIGURES if f"results/figures/{name}" not in pages] == []
    drawn = {
        path.relative_to(ROOT / "results" / "figures").as_posix() for path in ROOT.glob("results/figures/*/*")
    }
    assert drawn == set(FIGURES), "a figure that nothing draws"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One record of each kind."""
    wanted = set()
    for folder in sorted((ROOT / "results").glob("active/cifar10-simple/*")):
        wanted.add(folder)
    for folder in wanted:
        copy = shutil.copytree(folder, tmp_path / folder.relative_to(ROOT / "results"))
        editable(read_record(copy))
    return tmp_path


def test_a_changed_number_and_a_lost_figure_are_noticed(results: Path) -> None:
    name = "active-cifar10/curves.png"
    assert stale(results) == [name]
    assert [path.name for path in draw_all(results)] == ["curves.png", "figures.json"]
    assert stale(results) == []
    table = next(results.glob("active/*/*/curves.csv"))
    before = table.read_text()
    table.write_text(before.replace("0.", "0.1", 1))
    assert stale(results) == [name]
    table.write_text(before)
    assert stale(results) == []
    (results / "figures" / name).unlink()
    assert stale(results) == [name]
