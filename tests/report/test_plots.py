from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from report.stream_examples import stream_record

from cl_cnaps.errors import BadInputError
from cl_cnaps.report.labels import row_name
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.panels import (
    Panel,
    bar_figure,
    comparison_figure,
    draw_bars,
    line_labels,
    panels_of,
    shown_steps,
    step_figure,
)
from cl_cnaps.report.plots.streams import KINDS, draw_heatmap, heatmap_figure, stream_figures
from cl_cnaps.report.plots.style import OKABE_ITO, task_colours
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.view import draw


def panels(folder: Path, n_tasks: int = 3, **changes: object) -> list[Panel]:
    return panels_of(stream_record(folder, n_tasks, **changes))


def draw_streams(
    views: list[StreamView],
    folder: Path,
    kinds: Sequence[str] = KINDS,
    formats: Sequence[str] = ("png", "svg"),
) -> list[Path]:
    return style.draw(stream_figures(views, kinds), folder, formats)


def axes() -> Axes:
    return Figure().subplots()


def drawn_axes(figure: Figure) -> list[Axes]:
    return [a for a in figure.axes if a.get_visible() and a.get_title()]


def overlapping(boxes: list[matplotlib.transforms.Bbox]) -> bool:
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_bars_are_as_high_as_the_accuracies_step_by_step(tmp_path: Path) -> None:
    panel = panels(tmp_path)[1]
    area = axes()
    draw_bars(area, panel)
    heights = [bar.get_height() for bar in area.patches]
    mean = 100 * stream_record(tmp_path).accuracy("single").mean(axis=0)
    assert heights == pytest.approx([mean[step, task] for step in range(3) for task in range(step + 1)])
    lefts = [bar.get_x() for bar in area.patches]
    assert lefts == sorted(lefts)
    assert [label.get_text() for label in area.get_xticklabels()] == ["1", "2", "3"]
    dashed = [line for line in area.lines if line.is_dashed()]
    assert [line.get_ydata()[0] for line in dashed] == [69.5]


def test_whiskers_span_the_interval_and_a_single_run_has_none(tmp_path: Path) -> None:
    area, panel = axes(), panels(tmp_path)[0]
    draw_bars(area, panel)
    assert len(area.collections) == 3
    (segment,) = area.collections[0].get_segments()
    half = panel.half_intervals()
    assert half is not None
    expected = np.clip([panel.mean()[0, 0] - half[0, 0], panel.mean()[0, 0] + half[0, 0]], 0, 100)
    assert segment[:, 1] == pytest.approx(expected)
    alone = axes()
    draw_bars(alone, panels(tmp_path, runs=1)[0])
    assert len(alone.collections) == 0


def test_many_lines_have_their_intervals_at_the_end_and_few_have_bands(tmp_path: Path) -> None:
    few = [panels(tmp_path, model=name, encoding=None)[0] for name in ("ncm", "lda")]
    many = [
        panels(tmp_path, model=name, encoding=None)[0] for name in ("ncm", "lda", "ridge", "acil", "klda")
    ]
    (area,) = drawn_axes(step_figure(few))
    assert [type(one).__name__ for one in area.collections] == ["FillBetweenPolyCollection"] * 2
    (area,) = drawn_axes(step_figure(many))
    assert [type(one).__name__ for one in area.collections] == ["LineCollection"] * 5
    half = many[0].by_step()[1]
    assert half is not None
    (segment,) = area.collections[0].get_segments()
    mean = many[0].by_step()[0][-1]
    assert segment[:, 1] == pytest.approx(np.clip([mean - half[-1], mean + half[-1]], 0, 100))


def test_the_comparison_has_a_bar_for_each_model_and_head_best_first(tmp_path: Path) -> None:
    given = [p for name in ("ncm", "lda", "ridge") for p in panels(tmp_path, model=name, encoding=None)]
    figure = comparison_figure(given)
    (area,) = figure.axes
    assert len(area.patches) == len(given) == 6
    names = [label.get_text() for label in area.get_yticklabels()]
    single = {row_name(p.row): p.row["final_accuracy"]["mean"] for p in given if p.row["head"] == "single"}
    assert names == sorted(single, key=lambda name: -single[name])
    widths = [bar.get_width() for bar in area.patches]
    assert widths[:3] == pytest.approx([100 * single[name] for name in names])


def test_few_shot_class_incremental_streams_are_drawn_over_images(tmp_path: Path) -> None:
    given = [
        panel
        for model in ("ncm", "fsa-film")
        for panel in panels_of(
            stream_record(
                tmp_path, 3, 400, benchmark="fscil-cub", heads=["single"], model=model, encoding=None
            )
        )
    ]
    for panel in given:
        mean, half = panel.by_step()
        assert mean[-1] == pytest.approx(100 * panel.row["image_accuracy"])
        assert mean[-1] != pytest.approx(100 * panel.row["final_accuracy"]["mean"])
        assert half is not None
    assert line_labels(given)[0] == ["NCM, backbone features", "FSA-FiLM, from backbone features"]
    (area,) = comparison_figure(given).axes
    assert area.get_xlabel().startswith("final accuracy over images, %")
    assert area.patches[0].get_width() == pytest.approx(100 * given[0].row["image_accuracy"])


def test_the_grid_has_encodings_down_and_heads_across_as_in_the_paper(tmp_path: Path) -> None:
    given = [p for encoding in ("first", "averaging", "moving") for p in panels(tmp_path, encoding=encoding)]
    titles = [a.get_title().strip() for a in drawn_axes(bar_figure(given))]
    assert titles == [
        "Moving encoding, multi head",
        "Moving encoding, single head",
        "First encoding, multi head",
        "First encoding, single head",
        "Averaging encoding, multi head",
        "Averaging encoding, single head",
    ]
    assert len(drawn_axes(bar_figure(given[:3]))) == 3


@pytest.mark.parametrize(
    ("n_tasks", "first", "count"), [(1, 0, 1), (5, 0, 5), (12, 0, 12), (13, 0, 10), (50, 4, 10)]
)
def test_a_long_stream_shows_evenly_spaced_steps_up_to_the_last(n_tasks: int, first: int, count: int) -> None:
    steps = shown_steps(n_tasks)
    assert (steps[0], steps[-1], len(steps)) == (first, n_tasks - 1, count)


@pytest.mark.parametrize("n_tasks", [5, 12, 50])
def test_nothing_overlaps_or_leaves_the_figure(tmp_path: Path, n_tasks: int) -> None:
    given = panels(tmp_path, n_tasks, benchmark="folder:" + "a long name " * 8)
    for figure in (bar_figure(given), step_figure(given), heatmap_figure(given)):
        figure.draw_without_rendering()
        title = figure.get_suptitle()
        assert title.replace("\n", " ").startswith("folder:a long name")
        whole = figure.bbox.padded(1.5)
        for area in drawn_axes(figure):
            labels = [label for label in area.get_xticklabels() if label.get_text()]
            assert not overlapping([label.get_window_extent() for label in labels])
        boxes = [legend.get_window_extent() for legend in figure.legends]
        boxes += [a.get_tightbbox() for a in figure.axes if a.get_visible()]
        for box in boxes:
            assert (box.x0, box.y0) >= (whole.x0, whole.y0)
            assert box.x1 <= whole.x1
            assert box.y1 <= whole.y1
        for legend in figure.legends:
            assert not any(legend.get_window_extent().overlaps(a.bbox) for a in drawn_axes(figure))


@pytest.mark.parametrize("n_tasks", [2, 6, 7, 50])
def test_neighbouring_task_colours_differ_in_grey(n_tasks: int) -> None:
    colours = np.array([matplotlib.colors.to_rgb(colour) for colour in task_colours(n_tasks)])
    assert len(np.unique(colours, axis=0)) == n_tasks
    grey = colours @ [0.299, 0.587, 0.114]
    least = 0.04 if n_tasks <= len(OKABE_ITO) else 0.2 / n_tasks
    assert np.abs(np.diff(grey)).min() > least
    assert grey.max() < 0.9, "lost on white paper"


def test_heat_map_cells_hold_the_numbers_and_long_streams_do_without(tmp_path: Path) -> None:
    panel = panels(tmp_path)[0]
    area = axes()
    image = draw_heatmap(area, panel)
    values = image.get_array()
    assert values is not None
    assert values[0, 2] == pytest.approx(panel.mean()[2, 0])
    assert bool(np.ma.getmaskarray(values)[2, 0]) or np.isnan(values[2, 0])
    assert [text.get_text() for text in area.texts][:2] == [f"{panel.mean()[i, 0]:.0f}" for i in range(2)]
    long = axes()
    draw_heatmap(long, panels(tmp_path, 50)[0])
    assert not long.texts


def test_line_labels_say_only_what_differs(tmp_path: Path) -> None:
    first, moving = panels(tmp_path)[0], panels(tmp_path, encoding="moving")[0]
    naive, shots = panels(tmp_path, model="naive", encoding=None)[0], panels(tmp_path, shots=10)[0]
    assert line_labels([first]) == (
        ["mean of tasks seen"],
        ["Simple CNAPS", "first encoding", "tiny", "frozen features", "100 shots", "2 runs"],
    )
    assert line_labels([first, moving])[0] == ["first encoding", "moving encoding"]
    assert line_labels([first, naive])[0] == ["Simple CNAPS, frozen features", "Naive, backbone features"]
    labels, shared = line_labels([first, shots])
    assert labels == ["100 shots", "10 shots"]
    assert shared == ["Simple CNAPS", "first encoding", "tiny", "frozen features", "2 runs"]


def test_a_record_is_drawn_into_its_own_figures(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    paths = draw([record])
    names = [f"{kind}.{extension}" for kind in ("bars", "steps", "heatmap") for extension in ("png", "svg")]
    assert paths == [record.path / "figures" / name for name in names]
    with Image.open(paths[0]) as image:
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
    texts = " ".join(ElementTree.parse(paths[1]).getroot().itertext())
    for words in (
        "split-mnist",
        "Simple CNAPS",
        "tiny",
        "100 shots",
        "2 runs",
        "First encoding, single head",
    ):
        assert words in texts
    assert sorted(p.name for p in (record.path / "figures").iterdir()) == sorted(names)


def test_the_same_record_gives_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    once = {
        path.name: path.read_bytes() for path in draw_streams([record], tmp_path / "once", kinds=["bars"])
    }
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        drawn = draw_streams([record], tmp_path / "again", kinds=["bars"])
        assert matplotlib.rcParams["font.size"] == 20
    assert once == {path.name: path.read_bytes() for path in drawn}
    assert not re.search(rb"\d{4}-\d{2}-\d{2}T\d{2}", once["bars.svg"])


def test_several_figures_of_a_kind_are_named_apart(tmp_path: Path) -> None:
    changes = ({}, {"encoding": "moving"}, {"seed": 1}, {"benchmark": "split-cifar10"})
    records = [stream_record(tmp_path, n_tasks=1, heads=["single"], **change) for change in changes]
    paths = draw_streams(records, tmp_path / "figures", formats=["svg"])
    assert [path.stem for path in paths] == [
        "bars-split-mnist-simple",
        "bars-split-mnist-simple-first",
        "bars-split-cifar10-simple-first",
        "steps-split-mnist-simple",
        "steps-split-cifar10-simple-first",
        "heatmap-split-mnist-simple-first-1",
        "heatmap-split-mnist-simple-moving",
        "heatmap-split-mnist-simple-first-2",
        "heatmap-split-cifar10-simple-first",
    ]


def test_unknown_kinds_and_formats_are_refused(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    with pytest.raises(BadInputError, match="unknown kind 'pie'; known: bars, steps, heatmap"):
        draw_streams([record], tmp_path, kinds=["pie"])
    with pytest.raises(BadInputError, match="unknown format 'gif'; known: png, svg"):
        draw_streams([record], tmp_path, formats=["gif"])
