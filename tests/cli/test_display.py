"""Progress in a log: a line now and then, however long a step takes."""

from __future__ import annotations

import time

import pytest

from cl_cnaps.commands import display
from cl_cnaps.commands.display import Display


def test_a_long_step_leaves_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "_LINE_EVERY", 0.1)
    with Display() as shown:
        shown.begin("evaluation", 600)
        shown.show("MNIST: reading images", 7)
        deadline = time.monotonic() + 20
        lines: list[str] = []
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            lines += capsys.readouterr().err.splitlines()
    assert set(lines) == {"evaluation: 7 of 600: MNIST: reading images"}
    assert len(lines) >= 2
    time.sleep(0.3)
    capsys.readouterr()
    time.sleep(0.3)
    assert capsys.readouterr().err == "", "it ends with the block"


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(display, "_LINE_EVERY", 0.01)
    with Display(quiet=True) as shown:
        shown.begin("evaluation", 600)
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
