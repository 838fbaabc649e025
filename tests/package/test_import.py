"""`import cl_cnaps`: cheap, complete, and typed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cl_cnaps

HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "avalanche",
    "pandas",
    "matplotlib",
    "numpy",
    "sklearn",
    "PIL",
    "click",
)


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = f"import cl_cnaps, sys, json; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_every_public_name_is_there_and_documented() -> None:
    assert dir(cl_cnaps) == sorted(cl_cnaps.__all__)
    for name in cl_cnaps.__all__:
        assert getattr(cl_cnaps, name).__doc__ or name == "__version__", name
    with pytest.raises(AttributeError, match="has no attribute 'Complicated'"):
        cl_cnaps.Complicated  # noqa: B018


def test_the_version_is_the_installed_one() -> None:
    assert cl_cnaps.__version__ == metadata.version("cl-cnaps")


def test_types_are_for_users_too() -> None:
    assert (Path(cl_cnaps.__file__).parent / "py.typed").is_file()
