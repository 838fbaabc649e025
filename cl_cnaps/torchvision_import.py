"""Let a CUDA-built torchvision be imported beside a CPU-only PyTorch.

torchvision registers fake kernels for its compiled operators while it is being imported. When its compiled
extension cannot be loaded (a wheel built for CUDA on a machine without it), the operators do not exist and the
import dies with "operator torchvision::nms does not exist", although nothing in this project uses them.
Declaring their schemas first is enough.

`install` puts a finder in front of the import system that acts when torchvision is first imported, whoever imports it
(timm and Avalanche do), and then removes itself; looking torchvision up changes nothing. Where the extension loads,
nothing is declared.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class _BeforeTorchvision(MetaPathFinder):
    """Finds torchvision as Python itself does, and has the operators declared just before its code runs."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname) if fullname == "torchvision" else None
        if spec is None or spec.loader is None or not spec.submodule_search_locations:
            return None
        package, loader, run = Path(spec.submodule_search_locations[0]), spec.loader, spec.loader.exec_module

        def declare_and_run(module: ModuleType) -> None:
            loader.exec_module = run  # type: ignore[method-assign]
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _declare_if_missing(package)
            run(module)

        loader.exec_module = declare_and_run  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Arm the finder, unless torchvision is already there or the finder already is."""
    armed = any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path)
    if "torchvision" not in sys.modules and not armed:
        sys.meta_path.insert(0, _BeforeTorchvision())


def _declare_if_missing(package: Path) -> None:
    """Declare each schema when the compiled extension in the package's folder cannot be loaded."""
    import torch

    # _C.so, with Python's suffix or without; newer versions have _C_stable.so
    for extension in sorted(package.glob("_C*")):
        if extension.name.endswith((".so", *EXTENSION_SUFFIXES)):
            try:
                torch.ops.load_library(extension)  # type: ignore[no-untyped-call]
            except OSError:
                break
            return
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):  # another package may have had the same trouble
            torch.library.define(f"torchvision::{name}", schema)
