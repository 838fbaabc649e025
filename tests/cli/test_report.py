from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from report.stream_examples import stream_record

from cl_cnaps.commands.main import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_results_and_runs_are_taken_where_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run()
    assert result.exit_code == 1
    assert "neither results/ nor runs/" in result.output
    stream_record(Path("results"))
    stream_record(Path("runs"), encoding="moving")
    result = run()
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == ["records:  2", f"site:     {tmp_path / 'site' / 'index.html'}"]
    assert (tmp_path / "site" / "index.html").is_file()


def test_of_the_usual_folders_those_without_records_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = Path("runs/metatrain/simple")
    checkpoints.mkdir(parents=True)
    (checkpoints / "log.csv").write_text("step,loss\n")
    result = run()
    assert result.exit_code == 1
    assert "neither results/ nor runs/" in result.output
    stream_record(Path("results"))
    result = run()
    assert result.exit_code == 0, result.output
    assert "records:  1" in result.output
    named = run("results", "runs")
    assert named.exit_code == 1
    assert "runs is no run record and holds none" in named.output


def test_open_shows_the_front_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: shown.append(url) or False)
    stream_record(tmp_path / "runs")
    result = run(tmp_path / "runs", "--out", tmp_path / "my site", "--open")
    assert result.exit_code == 0, result.output
    assert shown == [(tmp_path / "my site" / "index.html").as_uri()]
    assert "no web browser was found" in result.stderr


def test_a_record_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs")
    bad = stream_record(tmp_path / "runs", encoding="moving")
    (bad.path / "summary.json").write_text("{")
    result = run(tmp_path / "runs", "--out", tmp_path / "site")
    assert result.exit_code == 0
    assert f"not read: {bad.path}: " in result.stderr
    assert "records:  1" in result.stdout


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs")
    result = run(tmp_path / "runs", "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert "was not made by `cl-cnaps report`" in result.output
    assert (tmp_path / "runs" / "stream").is_dir()
