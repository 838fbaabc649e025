"""The version is one number, wherever it stands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import cl_cnaps

ROOT = Path(__file__).parents[2]


def test_the_citation_and_the_changes_name_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == cl_cnaps.__version__  # type: ignore[index]
    assert f"## {cl_cnaps.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_build_reads_it_from_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cl_cnaps.__version__"}
