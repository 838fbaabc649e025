"""What has to be done around the first import of three libraries, whoever imports them.

torchvision registers fake kernels for its compiled operators while it is being imported. When its compiled
extension cannot be loaded (a wheel built for CUDA on a machine without it), the operators do not exist and the
import dies with "operator torchvision::nms does not exist", although nothing in this project uses them.
Declaring their schemas first is enough. Where the extension loads, nothing is declared.

Avalanche writes a file of settings into the home folder when it is imported for the first time: it opens the file and
then fills it, and of two processes that start together one may read it empty. Here the file appears whole.

timm and Avalanche import Weights & Biases, and Avalanche a downloader and torchmetrics, for what few programs use;
torchvision imports PyTorch's compiler, which takes longer than PyTorch itself, for one question that RoI align has
where its compiled operator cannot be used. These are loaded when something in them is first used, which makes every
start seconds shorter.

`install` puts a finder for each in front of the import system, which acts once, when the library's code is about to
run; looking a library up changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class _AroundImport(MetaPathFinder):
    """Finds one library as Python itself does; its code runs within the context that `around` makes of its folder."""

    def __init__(self, library: str, around: Callable[[Path], AbstractContextManager[None]]) -> None:
        self.library = library
        self.around = around

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname) if fullname == self.library else None
        if spec is None or spec.loader is None or not spec.submodule_search_locations:
            return None
        package, loader, run = Path(spec.submodule_search_locations[0]), spec.loader, spec.loader.exec_module

        def run_within(module: ModuleType) -> None:
            loader.exec_module = run  # type: ignore[method-assign]
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            with self.around(package):
                run(module)

        loader.exec_module = run_within  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Arm the finders of libraries that are not imported yet, each once."""
    armed = {finder.library for finder in sys.meta_path if isinstance(finder, _AroundImport)}
    for library, around in (
        ("torchvision", _around_torchvision),
        ("timm", _around_timm),
        ("avalanche", _around_avalanche),
    ):
        if library not in sys.modules and library not in armed:
            sys.meta_path.insert(0, _AroundImport(library, around))


@contextmanager
def _around_torchvision(package: Path) -> Iterator[None]:
    _declare_if_missing(package)
    with _later("torch._dynamo.utils", "is_compile_supported"):
        yield


@contextmanager
def _around_timm(_package: Path) -> Iterator[None]:
    with _later("wandb"):
        yield


@contextmanager
def _around_avalanche(_package: Path) -> Iterator[None]:
    _write_avalanche_settings()
    with (
        _later("wandb"),
        _later("gdown"),
        _later("torchmetrics"),
        _later("torchmetrics.functional", "accuracy"),
    ):
        yield


@contextmanager
def _later(name: str, *functions: str) -> Iterator[None]:
    """Let those who import a module within the block have a stand-in that loads it when it is first used.

    `functions` are those which are imported out of the module: each loads it when it is called.
    """
    if name in sys.modules:
        yield
        return
    stand_in = sys.modules[name] = _StandIn(name)
    for function in functions:
        setattr(stand_in, function, partial(_call, name, function))
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def _call(module: str, function: str, *arguments: Any, **named: Any) -> Any:
    return getattr(_loaded(module), function)(*arguments, **named)


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # the import system looks
            raise AttributeError(name)
        return getattr(_loaded(self.__name__), name)


def _loaded(name: str) -> ModuleType:
    """The module itself; while others are still being imported, no part of its package may be a stand-in then."""
    package = name.partition(".")[0]
    for other, module in list(sys.modules.items()):
        if isinstance(module, _StandIn) and other.partition(".")[0] == package:
            del sys.modules[other]
    return import_module(name)


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


def _write_avalanche_settings() -> None:
    """Write the file that Avalanche would write, unless it is there."""
    from cl_cnaps.data.atomic import write_text

    file = Path("~/.avalanche/config.json").expanduser()
    with suppress(OSError):  # Avalanche then names what is wrong
        if not file.is_file() or not file.stat().st_size:
            write_text(file, json.dumps({"dataset_location": str(file.parent / "data")}, indent=4))
