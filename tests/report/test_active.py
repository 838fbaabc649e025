"""What is computed from learning curves, and how it is told and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.curves import area, curve_figures, labels_to_reach
from cl_cnaps.report.active import active_table
from cl_cnaps.report.labels import ABSENT
from cl_cnaps.report.plots.active import curve_figure
from cl_cnaps.report.plots.style import chart_settings, draw, strategy_colours
from cl_cnaps.report.table import markdown_table

LABELS = [50, 75, 100]
RANDOM = np.array([[0.4, 0.5, 0.6], [0.5, 0.6, 0.7]])


def entries(source: str = "omniglot", alphabet: str | None = "Greek", **other: Any) -> list[dict[str, Any]]:
    """Entries of a record, one for each of two strategies."""
    shared = {
        "source": source,
        "alphabet": alphabet,
        "model": "simple",
        "backbone": "efficientnet-lite0",
        "adaptation": "none",
        "weights_source": "none",
        "per_round": 25,
        "runs": 2,
        "classes_seen_in_pretraining": False,
        "seen_in_pretraining": "none",
        "classes_seen_in_training": False,
        "seen_in_training": "none",
        **other,
    }
    figures = curve_figures(LABELS, {"random": RANDOM, "entropy": RANDOM + 0.1})
    return [{**shared, "strategy": name, **of} for name, of in figures.items()]


def active_markdown(rows: list[dict[str, Any]]) -> str:
    return markdown_table(active_table(rows))


def test_area_is_a_mean_accuracy_over_labels() -> None:
    assert area(LABELS, RANDOM).tolist() == pytest.approx([0.5, 0.6])
    assert area([10, 20, 40], np.array([[0.0, 0.6, 0.6]])).tolist() == pytest.approx([0.5])
    with pytest.raises(BadInputError, match="two or more points"):
        area([5], np.array([[0.5]]))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_area_lies_between_the_least_and_the_most(curve: list[float]) -> None:
    (found,) = area(range(5, 5 + len(curve)), np.array([curve])).tolist()
    assert min(curve) - 1e-12 <= found <= max(curve) + 1e-12


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_labels_to_reach_are_the_first_that_do(curve: list[float], goal: float) -> None:
    found = labels_to_reach(range(len(curve)), curve, goal)
    if found is None:
        assert max(curve) < goal
    else:
        assert curve[found] >= goal
        assert all(value < goal for value in curve[:found])


def test_figures_compare_with_random_run_by_run() -> None:
    found = curve_figures(LABELS, {"random": RANDOM, "entropy": RANDOM + 0.1})
    assert found["random"]["gain"] is None
    assert found["entropy"]["gain"]["mean"] == pytest.approx(0.1)
    assert found["entropy"]["gain"]["ci95"] == pytest.approx(0, abs=1e-12)  # though runs differ by as much
    assert found["random"]["area_ci95"] > 0.5
    assert found["random"]["accuracy"]["mean"] == pytest.approx([0.45, 0.55, 0.65])
    assert len(found["random"]["accuracy"]["ci95"]) == 3
    assert found["random"]["reach"] == {"accuracy": pytest.approx(0.65), "labels": 100}
    assert found["entropy"]["reach"]["labels"] == 75
    assert curve_figures(LABELS, {"entropy": RANDOM}, reach=0.9)["entropy"]["reach"]["labels"] is None
    single = curve_figures(LABELS, {"entropy": RANDOM[:1]})["entropy"]
    assert single["gain"] is None
    assert single["accuracy"]["ci95"] == [None] * 3
    assert single["area_ci95"] is None


def test_the_table_says_once_what_rows_share_and_averages_alphabets() -> None:
    both = [*entries(alphabet="Greek"), *entries(alphabet="Latin")]
    table = active_markdown(both)
    assert (
        "**omniglot · Simple CNAPS · efficientnet-lite0 · frozen (FFE) · 50 to 100 labels · 2 runs**" in table
    )
    assert "| alphabet | strategy | first, % | last, % | area, % |" in table
    assert "| Greek | entropy | 55.0 ± 63.5 |" in table
    assert f"| mean of 2 | entropy | 55.0 | 75.0 | 65.0 | +10.0 | {ABSENT} |" in table
    assert "95 % interval over runs" in table
    cifar = active_markdown(
        entries("cifar10", None, classes_seen_in_pretraining=True, seen_in_pretraining="all")
    )
    assert "cifar10\\*" in cifar
    assert "not new to the backbone: all" in cifar
    assert "mean of" not in cifar
    assert any("65.0 %" in note for note in active_table(entries()).notes)
    with pytest.raises(BadInputError, match="at least one"):
        active_markdown([])


def test_a_strategy_has_one_colour_in_every_figure() -> None:
    every = strategy_colours(("random", "entropy", "variation-ratio", "margin", "badge"))
    assert len(set(every.values())) == len(every)
    assert strategy_colours(("badge", "margin")) == {name: every[name] for name in ("badge", "margin")}
    with chart_settings():
        alone = [one for one in entries() if one["strategy"] == "entropy"]
        assert curve_figure(alone).axes[0].lines[0].get_color() == every["entropy"]


def test_the_figure_has_adapted_and_frozen_side_by_side(tmp_path: Path) -> None:
    both = [*entries(adaptation="film"), *entries(), *entries(model="transductive")]
    with chart_settings():
        figure = curve_figure(both)
        titles = [axes.get_title() for axes in figure.axes]
        assert titles == ["Greek", "Greek (FFE)"]
        assert [len(axes.lines) for axes in figure.axes] == [2, 4]
        left, right = figure.axes
        assert left.get_ylim() == right.get_ylim()
        assert left.lines[0].get_color() == right.lines[0].get_color() != left.lines[1].get_color()
        (legend,) = figure.legends
        names = [text.get_text() for text in legend.get_texts()]
        assert names == ["random", "entropy", "Simple CNAPS", "Transductive CNAPS"]
        first, second = (draw([("curves", curve_figure(both))], tmp_path / name, ["svg"]) for name in "ab")
    assert first[0].read_bytes() == second[0].read_bytes()
