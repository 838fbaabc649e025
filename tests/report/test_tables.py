from __future__ import annotations

import io
from pathlib import Path

import pytest
from report.stream_examples import stream_record
from rich.console import Console

from cl_cnaps.errors import BadInputError
from cl_cnaps.report.labels import ABSENT, duration, paper_cell, percent, shorten, size
from cl_cnaps.report.stream import stream_table
from cl_cnaps.report.table import markdown_table, terminal_table
from cl_cnaps.report.view import Row


def shown(summaries: list[Row], width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(stream_table(summaries)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def stream_markdown(rows: list[Row]) -> str:
    return markdown_table(stream_table(rows))


def test_the_table_fits_a_terminal_of_80_characters(tmp_path: Path) -> None:
    summaries = [
        entry
        for model in ("simple", "transductive")
        for encoding in ("moving", "first", "averaging")
        for entry in stream_record(tmp_path, model=model, encoding=encoding, runs=5).rows
    ]
    text = shown(summaries)
    lines = text.splitlines()
    assert lines[0].split(" · ")[0] == "split-mnist"
    for words in ("tiny", "frozen features", "100 shots", "5 runs"):
        assert words in lines[0]
    assert "…" not in text
    above = [i for i, line in enumerate(lines) if line.strip() == "Simple CNAPS"]
    assert len(above) == 1
    (row,) = [line for line in lines[above[0] : above[0] + 8] if "first" in line and "single" in line][:1]
    entry = next(
        s for s in summaries if (s["model"], s["encoding"], s["head"]) == ("simple", "first", "single")
    )
    expected = percent(entry["final_accuracy"]["mean"], entry["final_accuracy"]["ci95"]).replace(" ± ", "±")
    assert expected in row
    assert "69.5±1.0" in row
    assert "6.5 MB" in row


def test_what_the_rows_share_is_said_once_and_what_differs_gets_a_column(tmp_path: Path) -> None:
    same = stream_record(tmp_path).rows
    assert "Simple CNAPS" in stream_markdown(same).splitlines()[0]
    differing = same + stream_record(tmp_path, backbone="other", encoding=None, model="slda").rows
    lines = stream_markdown(differing).splitlines()
    assert lines[2].startswith("| model | backbone | encoding | head |")
    assert any(line.startswith(f"| SLDA | other | {ABSENT} | single |") for line in lines)


def test_a_single_run_says_that_it_has_no_interval(tmp_path: Path) -> None:
    text = shown(stream_record(tmp_path, runs=1).rows)
    assert "A single run has no interval." in text
    assert "interval over runs" not in text


def test_markdown_has_as_many_cells_in_every_row(tmp_path: Path) -> None:
    text = stream_markdown(stream_record(tmp_path, benchmark="folder:a|b").rows)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def test_no_summaries_is_an_error() -> None:
    with pytest.raises(BadInputError, match="at least one"):
        stream_table([])


def test_numbers_in_words() -> None:
    assert [percent(x) for x in (0.6954, -0.0004, -0.1, None)] == [
        "69.5",
        "0.0",
        "\N{MINUS SIGN}10.0",
        ABSENT,
    ]
    assert percent(0.5, 0.0123) == "50.0 ± 1.2"
    assert [size(n) for n in (0, 999, 1000, 99_960, 6_500_000, 999_600_000, 5e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "100 kB",
        "6.5 MB",
        "1.0 GB",
        "5.0 TB",
    ]
    assert [duration(s) for s in (0.04, 99.9, 99.96, 1234.5)] == ["0.0", "99.9", "100", "1234"]
    assert paper_cell({"mean": 99.3, "interval": None}) == "99.3"
    assert shorten("short", 10) == "short"
    assert len(shorten("a" * 50, 20)) == 20
