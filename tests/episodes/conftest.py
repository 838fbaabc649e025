from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def official_specs() -> Path:
    """The folder of Meta-Dataset's own spec files, beside the shared images; without it the test skips."""
    root = os.environ.get("CL_CNAPS_DATA")
    if not root:
        pytest.skip("CL_CNAPS_DATA is not set")
    folder = Path(root).parent / "meta_dataset_specs"
    if not folder.is_dir():
        pytest.skip(f"no official specs in {folder}")
    return folder
