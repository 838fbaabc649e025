from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts with an empty cache of its own."""
    folder = tmp_path / "own-cache"
    monkeypatch.setenv("CL_CNAPS_CACHE", str(folder))
    return folder


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """File permissions hold: the superuser, for whom they do not, becomes an ordinary user for the test."""
    if os.geteuid():
        yield
        return
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
