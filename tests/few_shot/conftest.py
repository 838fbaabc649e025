from __future__ import annotations

from pathlib import Path

import pytest

import cl_cnaps  # noqa: F401  (before torchvision, which needs its guard on some machines)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts with an empty cache of its own."""
    folder = tmp_path / "own-cache"
    monkeypatch.setenv("CL_CNAPS_CACHE", str(folder))
    return folder
