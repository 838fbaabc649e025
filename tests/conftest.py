"""What all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is not a failing property.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Tests run in several processes: each, and whatever it starts, keeps to one thread. Torch is not imported yet.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images that `CL_CNAPS_DATA` points to; tests that need it skip without it."""
    root = os.environ.get("CL_CNAPS_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("needs real images: set CL_CNAPS_DATA to a data folder")
    return Path(root)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the folders of the person who runs it."""
    monkeypatch.setenv("CL_CNAPS_WEIGHTS", str(tmp_path / "own-weights"))
    monkeypatch.delenv("CL_CNAPS_SPECS", raising=False)


@pytest.fixture(autouse=True)
def denormals_as_they_were() -> Iterator[None]:
    """Commands flush denormal numbers for the whole process; a command run inside a test must not do so for others."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
