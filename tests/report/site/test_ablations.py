"""Ablations on their page: tables in the shape of the paper's, and curves where it has curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.site.made_up import ablation

from cl_cnaps.few_shot.ablations import GRID_MAX, GRID_MIN, QUERIES
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.generated import ablation_markdown
from cl_cnaps.report.labels import ABSENT
from cl_cnaps.report.site import gather, showable
from cl_cnaps.report.site.ablations import Shown, ablations_page


def shown(folder: Path) -> Shown:
    (changed,) = ablations_page(gather([folder])).content["changed"]
    (one,) = changed.shown
    assert isinstance(one, Shown)
    return one


def test_shots_are_shown_as_class_recall_by_bin(tmp_path: Path) -> None:
    record = ablation(tmp_path, "shots")
    one = shown(tmp_path)
    table = one.tables[0]
    assert [column.title for column in table.columns] == ["", "1", "2", "6-7"]
    assert [cell.text for cell in table.rows[0].cells] == ["Simple", "51.0 ± 2.0", "52.0 ± 2.0", "56.5 ± 1.4"]
    written = ablation_markdown(AblationView(record))
    for row in table.rows:
        assert f"| {' | '.join(cell.text for cell in row.cells)} |" in written
    assert one.curves is not None
    assert [line["labels"] for line in one.curves.lines] == [["1", "2", "6-7"]] * 2
    assert one.curves.lines[0]["at"] == [1, 2, 6.5]
    assert "recall" in table.caption


def test_of_refinement_the_papers_rows_and_the_grid_are_apart(tmp_path: Path) -> None:
    ablation(tmp_path, "refinement")
    one = shown(tmp_path)
    table, grid = one.folded
    here = [row.cells[0].text for row in table.rows if row.kind == "here"]
    assert here == ["Simple CNAPS", "No Refinements", "No Min/Max", "Min 2 Max 4, raw", "Min 2 Max 4"]
    assert [column.title for column in grid.columns] == ["", *map(str, GRID_MAX)]
    assert [row.cells[0].text for row in grid.rows] == list(map(str, GRID_MIN))
    assert [cell.text for cell in grid.rows[0].cells[1:]] == [f"{54 + n}.0" for n in range(len(GRID_MAX))]
    assert [cell.text for cell in grid.rows[4].cells[1:4]] == [ABSENT] * 3  # least above most
    assert one.ranked is table
    assert one.notes[0] == (
        "Weights: weights of simple (Simple CNAPS); weights of transductive "
        "(No Refinements, No Min/Max, Min 2 Max 4, raw, the other cells of the grid, Min 2 Max 4)."
    )


def test_a_cell_that_the_grid_lacks_is_empty(tmp_path: Path) -> None:
    ablation(tmp_path, "refinement", rows=("simple", "none", "free", "2-4", "0-1"))
    _, grid = shown(tmp_path).folded
    assert [cell.text for cell in grid.rows[0].cells[1:3]] == ["53.0", ABSENT]
    assert [cell.text for cell in grid.rows[2].cells[1:5]] == [ABSENT, ABSENT, ABSENT, "54.0"]


def test_queries_are_the_columns_of_their_ablation(tmp_path: Path) -> None:
    record = ablation(tmp_path, "queries")
    one = shown(tmp_path)
    table = one.tables[0]
    assert [column.title for column in table.columns[1:]] == list(map(str, QUERIES))
    assert [row.cells[0].text for row in table.rows] == [
        "Simple, mini-ImageNet 5-way 1-shot",
        "Transductive, mini-ImageNet 5-way 1-shot",
    ]
    assert [cell.text for cell in table.rows[1].cells[1:3]] == ["51.0 ± 1.0", "51.1 ± 1.0"]
    written = ablation_markdown(AblationView(record))
    for row in table.rows:
        assert f"| {' | '.join(cell.text for cell in row.cells)} |" in written
    assert one.curves is not None
    assert [(line["line"], line["at"]) for line in one.curves.lines] == [
        ("Simple", list(QUERIES)),
        ("Transductive", list(QUERIES)),
    ]


@pytest.mark.parametrize("recall", ["row,shots,classes,recall,std\n", None, "nan"])
def test_recall_that_cannot_be_read_holds_up_no_other_record(tmp_path: Path, recall: str | None) -> None:
    ablation(tmp_path, "metric")
    path = ablation(tmp_path, "shots").path / "recall.csv"
    if recall is None:
        path.unlink()
    else:
        path.write_text(path.read_text().replace("0.51,", "nan,") if recall == "nan" else recall)
    found = showable(gather([tmp_path]))
    assert [one.which for one in found.ablations] == ["metric"]
    assert "recall" in found.unreadable[0].reason
    ablations_page(found)
