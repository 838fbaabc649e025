"""The ablation of the adaptation: its table by data set, task encodings in two dimensions, distances of FiLM."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from report.site.made_up import ablation

from cl_cnaps.errors import BadInputError
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.adaptation import film_distances, film_ratio
from cl_cnaps.report.generated import ablation_markdown, ablation_part
from cl_cnaps.report.plots.few_shot import distances_figure, encodings_figure
from cl_cnaps.report.site import gather, showable, write_site
from cl_cnaps.report.view import draw

SETS = ["ImageNet", "Omniglot", "MNIST"]


@pytest.fixture
def view(tmp_path: Path) -> AblationView:
    return AblationView(ablation(tmp_path, "adaptation", more=SETS[1:]))


def test_a_row_for_each_data_set_with_what_own_brings(view: AblationView) -> None:
    (table,) = view.own_tables()
    titles = [column.title for column in table.columns]
    assert titles == [
        "",
        "Own",
        "Static",
        "Swapped",
        "Frozen",
        "own - static",
        "own - swapped",
        "own - frozen",
    ]
    assert [row.cells[0].text for row in table.rows] == [*SETS, "mean"]
    omniglot = [cell.text for cell in table.rows[1].cells[1:]]
    # The made-up tasks differ by 1.0 and 1.1, 2.0 and 2.2, 3.0 and 3.3 points.
    assert omniglot[0] == "50.1 ± 1.0"
    assert omniglot[4:] == ["-1.1 ± 0.1", "-2.1 ± 0.2", "-3.2 ± 0.3"]
    written = ablation_markdown(view)
    assert f"| Omniglot | {' | '.join(omniglot)} |" in written
    assert "FiLM of data sets is 0.013 apart on average" in written


def test_encodings_are_projected_on_what_varies_most_and_coloured_by_data_set(view: AblationView) -> None:
    (axes,) = encodings_figure(view).axes
    assert isinstance(axes, Axes)
    clouds = [cloud.get_offsets() for cloud in axes.collections]
    assert [len(cloud) for cloud in clouds] == [20, 20, 20]  # type: ignore[arg-type]
    colours = {tuple(cloud.get_facecolor()[0]) for cloud in axes.collections}  # type: ignore[index]
    assert len(colours) == len(SETS)
    for one, other in combinations(clouds, 2):
        apart = sum((one.mean(axis=0) - other.mean(axis=0)) ** 2) ** 0.5  # type: ignore[union-attr]
        assert apart > 3 * one.std(), "made-up sources lie apart"  # type: ignore[union-attr]
    assert "% of the variance" in axes.get_xlabel()


def test_distances_of_film_are_written_in_their_cells(view: AblationView) -> None:
    names, apart = film_distances(view)
    assert names == [*SETS, "no FiLM"]
    assert apart[0, 2] == pytest.approx(0.02)
    assert film_ratio(view) == pytest.approx(((0.01 + 0.02 + 0.01) / 3, 0.09))
    (axes,) = distances_figure(view).axes
    assert [text.get_text() for text in axes.texts][:4] == ["0.000", "0.010", "0.020", "0.100"]


def test_both_are_drawn_and_a_record_without_them_is_a_table_alone(
    view: AblationView, tmp_path: Path
) -> None:
    drawn = draw([view], tmp_path / "figures", ["svg"])
    assert [path.name for path in drawn] == ["encodings.svg", "film-distances.svg"]
    (view.path / "encodings.csv").unlink()
    assert draw([view], tmp_path / "figures") == []
    assert "Omniglot" in ablation_markdown(view)


def test_numbers_that_are_not_finite_are_refused(view: AblationView) -> None:
    path = view.path / "film_distances.csv"
    path.write_text(path.read_text().replace("0.01", "nan", 1))
    with pytest.raises(BadInputError, match="no finite number"):
        film_distances(view)


@pytest.mark.parametrize(
    "damage", ["episode,e0\n", "data_set,episode,e0\nimagenet,0,much\n", "data_set,episode,e0\n"]
)
def test_encodings_that_cannot_be_read_hold_up_no_other_record(tmp_path: Path, damage: str) -> None:
    ablation(tmp_path / "runs", "metric")
    bad = ablation(tmp_path / "runs", "adaptation")
    (bad.path / "encodings.csv").write_text(damage)
    found = showable(gather([tmp_path / "runs"]))
    assert [one.which for one in found.ablations] == ["metric"]
    assert [one.path for one in found.unreadable] == [bad.path]
    assert write_site(found, tmp_path / "site").is_file()


def test_a_task_without_a_finite_accuracy_is_refused(view: AblationView) -> None:
    path = view.path / "episodes.csv"
    path.write_text(path.read_text().replace("0.5\n", "nan\n", 1))
    with pytest.raises(BadInputError, match="no finite number"):
        view.differences()


def test_figures_beside_a_record_stand_above_its_tables(view: AblationView, tmp_path: Path) -> None:
    make = ablation_part("adaptation")
    assert "](../" not in make(tmp_path)
    draw([view], view.path / "figures", ["png"])
    linked = f"../{tmp_path.name}/ablate/adaptation/{view.record.id}/figures/encodings.png"
    assert f"![Task encodings in two dimensions, coloured by data set]({linked})" in make(tmp_path)


def test_the_site_shows_both_figures(view: AblationView, tmp_path: Path) -> None:
    site = write_site(gather([tmp_path / "ablate"]), tmp_path / "site").parent
    pictures = sorted(path.name for path in site.glob(f"figures/*{view.record.id}/*.png"))
    assert pictures == ["encodings.png", "film-distances.png"]
    page = (site / "ablations.html").read_text()
    assert page.count("<img ") == 2
    assert "own - static" in page
