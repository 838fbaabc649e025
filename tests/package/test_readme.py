"""The README's Python examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from package.digits import save_digits

README = Path(__file__).parents[2] / "README.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_afternoon_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From folders of images to predictions in about five lines."""
    (example,) = (text for text in examples() if "FewShotClassifier.learn(" in text)
    lines = [line for line in example.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 7, "about five lines"
    labelled = re.search(r"learn\(\s*[\"']([^\"']+)", example)
    new = re.search(r"predictions\(\s*[\"']([^\"']+)", example)
    assert labelled
    assert new
    for digit in (1, 7):
        save_digits(digit, 4, 2, tmp_path / labelled[1], tmp_path / new[1])
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 4
    assert "1_4.png" in printed


def test_the_install_command_is_the_one_that_ci_runs() -> None:
    assert re.search(r'^pip install "\.\[test\]"', README.read_text(encoding="utf-8"), re.MULTILINE)
