from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from results.stream_examples import stream_record

from cl_cnaps.commands.plot import plot
from cl_cnaps.errors import BadInputError, MissingDataError


def run(*arguments: object) -> list[str]:
    result = CliRunner().invoke(plot, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


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


def test_mistakes_are_named(tmp_path: Path) -> None:
    record = stream_record(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingDataError, match="no stream record and holds none"):
        run(tmp_path / "empty")
    with pytest.raises(BadInputError, match="unknown format 'pdf'"):
        run(record.path, "--format", "pdf")
    assert CliRunner().invoke(plot, [str(tmp_path / "nowhere")]).exit_code == 2
    assert CliRunner().invoke(plot, []).exit_code == 2


def test_importing_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, cl_cnaps.commands.plot\n"
        "print([m for m in ('matplotlib', 'numpy', 'torch', 'rich') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
