"""What has to be done just before two libraries are first imported, whoever imports them.

torchvision registers fake kernels for its compiled operators while it is being imported. When its compiled
extension cannot be loaded (a wheel built for CUDA on a machine without it), the operators do not exist and the
import dies with "operator torchvision::nms does not exist", although nothing in this project uses them.
Declaring their schemas first is enough. Where the extension loads, nothing is declared.

Avalanche writes a file of settings into the home folder when it is imported for the first time: it opens the file and
then fills it, and of two processes that start together one may read it empty. Here the file appears whole.

`install` puts a finder for each in front of the import system, which acts once, when the library's code is about to
run; looking a library up changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class _BeforeImport(MetaPathFinder):
    """Finds one library as Python itself does, and calls `action` with its folder just before its code runs."""

    def __init__(self, library: str, action: Callable[[Path], None]) -> None:
        self.library = library
        self.action = action

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

        def act_and_run(module: ModuleType) -> None:
            loader.exec_module = run  # type: ignore[method-assign]
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self.action(package)
            run(module)

        loader.exec_module = act_and_run  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Arm the finders of libraries that are not imported yet, each once."""
    armed = {finder.library for finder in sys.meta_path if isinstance(finder, _BeforeImport)}
    for library, action in (("torchvision", _declare_if_missing), ("avalanche", _write_avalanche_settings)):
        if library not in sys.modules and library not in armed:
            sys.meta_path.insert(0, _BeforeImport(library, action))


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


def _write_avalanche_settings(_package: Path) -> None:
    """Write the file that Avalanche would write, unless it is there."""
    from cl_cnaps.data.atomic import write_text

    file = Path("~/.avalanche/config.json").expanduser()
    with suppress(OSError):  # Avalanche then names what is wrong
        if not file.is_file() or not file.stat().st_size:
            write_text(file, json.dumps({"dataset_location": str(file.parent / "data")}, indent=4))
