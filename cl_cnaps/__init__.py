"""Simple CNAPS and Transductive CNAPS as continual and few-shot learners.

Importing this package is cheap: PyTorch and everything on top of it is loaded when one of the names below is
first used, so that command-line help stays instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cl_cnaps import before_import

if TYPE_CHECKING:
    from cl_cnaps.classifier import FewShotClassifier, load
    from cl_cnaps.continual.strategies import CnapsStrategy, SimpleCnapsStrategy, TransductiveCnapsStrategy
    from cl_cnaps.models.cnaps import Cnaps, SimpleCnaps, TransductiveCnaps
    from cl_cnaps.predictions import Prediction
    from cl_cnaps.torch_setup import set_up_torch

__version__ = "0.1.0"
"""The build reads it from here."""

_PUBLIC = {
    "Cnaps": "cl_cnaps.models.cnaps",
    "CnapsStrategy": "cl_cnaps.continual.strategies",
    "FewShotClassifier": "cl_cnaps.classifier",
    "Prediction": "cl_cnaps.predictions",
    "SimpleCnaps": "cl_cnaps.models.cnaps",
    "SimpleCnapsStrategy": "cl_cnaps.continual.strategies",
    "TransductiveCnaps": "cl_cnaps.models.cnaps",
    "TransductiveCnapsStrategy": "cl_cnaps.continual.strategies",
    "load": "cl_cnaps.classifier",
    "read_results": "cl_cnaps.records",
    "set_up_torch": "cl_cnaps.torch_setup",
}

__all__ = [
    "Cnaps",
    "CnapsStrategy",
    "FewShotClassifier",
    "Prediction",
    "SimpleCnaps",
    "SimpleCnapsStrategy",
    "TransductiveCnaps",
    "TransductiveCnapsStrategy",
    "__version__",
    "load",
    "read_results",
    "set_up_torch",
]

before_import.install()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
