from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from report.stream_examples import stream_record

from cl_cnaps.commands.report import plot
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import record_folders

RESULTS = Path(__file__).parents[2] / "results"


def run(*arguments: object) -> list[str]:
    result = CliRunner().invoke(plot, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [line.removeprefix("figure:   ") for line in result.output.splitlines()]


def test_one_record_is_drawn_into_its_own_folder_and_the_files_are_printed(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    lines = run(record.path, "--format", "svg")
    assert lines == [str(record.path / "figures" / f"{kind}.svg") for kind in ("bars", "steps", "heatmap")]
    assert all(Path(line).is_file() for line in lines)


def test_several_records_make_one_grid_and_one_figure_of_lines(tmp_path: Path) -> None:
    one, two = stream_record(tmp_path), stream_record(tmp_path, encoding="moving")
    out = tmp_path / "drawn"
    assert run(one.path, two.path, "--kind", "bars", "--format", "png, svg", "--out", out) == [
        str(out / "bars.png"),
        str(out / "bars.svg"),
    ]
    svg = (out / "bars.svg").read_text()
    assert "Moving encoding, single head" in svg
    assert "First encoding, single head" in svg
    assert run(tmp_path / "stream", "--kind", "steps", "--format", "svg", "--out", out) == [
        str(out / "steps.svg")
    ]


def test_several_records_go_to_figures_here_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_record(tmp_path)
    stream_record(tmp_path, encoding="moving")
    monkeypatch.chdir(tmp_path)
    assert run("stream", "--kind", "steps", "--format", "svg") == [str(Path("figures") / "steps.svg")]


def kept(verb: str, out: Path, most: int | None = None) -> list[Path]:
    """Copies of kept records of a verb, without their figures."""
    places = []
    for folder in list(record_folders(RESULTS / verb))[:most]:
        place = out / folder.relative_to(RESULTS)
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("figures"))
        places.append(place)
    return places


def test_evaluations_are_drawn_alone_and_together(tmp_path: Path) -> None:
    place, *_ = kept("evaluate", tmp_path)
    assert run(place, "--format", "svg") == [
        str(place / "figures" / name) for name in ("recall.svg", "tasks.svg")
    ]
    out = tmp_path / "drawn"
    targets = ("cifar10", "meta-dataset", "mini-imagenet", "mnist", "omniglot")
    assert run(tmp_path / "evaluate", "--format", "svg", "--out", out) == [
        str(out / f"{kind}-{target}.svg") for target in targets for kind in ("recall", "tasks")
    ]
    svg = (out / "recall-mini-imagenet.svg").read_text()
    assert "Simple CNAPS" in svg
    assert "Transductive CNAPS" in svg


def test_records_of_active_learning_share_a_figure_for_each_source(tmp_path: Path) -> None:
    places = kept("active", tmp_path)
    out = tmp_path / "drawn"
    lines = run(tmp_path / "active", "--format", "png", "--out", out)
    sources = sorted({place.parent.name.split("-")[0] for place in places})
    assert [Path(line).name for line in lines] == [f"curves-{source}.png" for source in sources]
    (place,) = kept("active", tmp_path / "one", 1)
    assert run(place, "--format", "svg") == [str(place / "figures" / "curves.svg")]


def test_ablations_with_charts_are_drawn(tmp_path: Path) -> None:
    places = {place.parent.name: place for place in kept("ablate", tmp_path)}
    assert run(places["refinement"], "--format", "svg") == [
        str(places["refinement"] / "figures" / "grid.svg")
    ]
    out = tmp_path / "drawn"
    lines = run(tmp_path / "ablate", "--format", "svg", "--out", out)
    kinds = ("encodings", "film-distances", "grid", "queries", "recall")
    assert sorted(lines) == [str(out / f"{kind}.svg") for kind in kinds]
    other = places["shots"].with_name("0123456789ab")
    shutil.copytree(places["shots"], other)
    lines = run(places["shots"], other, "--format", "svg", "--out", out)
    assert lines == [str(out / f"recall-{place.name}.svg") for place in (places["shots"], other)]
    with pytest.raises(BadInputError, match="nothing to draw"):
        run(places["metric"])
    with pytest.raises(BadInputError, match="unknown format 'pdf'"):
        run(places["shots"], "--format", "pdf")


def test_records_of_several_verbs_have_a_folder_each_and_a_kind_means_streams(tmp_path: Path) -> None:
    stream = stream_record(tmp_path / "runs")
    (place,) = kept("active", tmp_path / "runs", 1)
    out = tmp_path / "drawn"
    assert run(tmp_path / "runs", "--format", "svg", "--out", out) == [
        *(str(out / "stream" / f"{kind}.svg") for kind in ("bars", "steps", "heatmap")),
        str(out / "active" / "curves.svg"),
    ]
    assert run(tmp_path / "runs", "--format", "svg", "--kind", "bars") == [
        str(stream.path / "figures" / "bars.svg")
    ]
    with pytest.raises(MissingDataError, match="no record of `cl-cnaps stream` and holds none"):
        run(place, "--kind", "all")


def test_mistakes_are_named(tmp_path: Path) -> None:
    record = stream_record(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        MissingDataError, match="no record of `cl-cnaps stream, evaluate, active, ablate` and holds none"
    ):
        run(tmp_path / "empty")
    with pytest.raises(BadInputError, match="unknown format 'pdf'"):
        run(record.path, "--format", "pdf")
    assert CliRunner().invoke(plot, [str(tmp_path / "nowhere")]).exit_code == 2
    assert CliRunner().invoke(plot, []).exit_code == 2
