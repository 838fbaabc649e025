"""What happens before libraries are imported: torchvision's missing operators, Avalanche's settings.

Each case is a process of its own, since an operator that is declared stays declared.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torchvision_can_be_imported_here() -> None:
    """On a machine where its extension does not load, this is the case the guard was written for."""
    run("""
        import cl_cnaps
        import torchvision
    """)


def fake_torchvision(folder: Path, extension: bytes | None = b"no library") -> Path:
    """A package of that name which needs its operators on import, as the real one does."""
    package = folder / "torchvision"
    package.mkdir()
    needs = "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *a: a[0])\n"
    (package / "__init__.py").write_text(needs)
    if extension is not None:
        (package / "_C.so").write_bytes(extension)
    return folder


IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
before = list(sys.meta_path)
{guard}
import decimal, torchvision, torch
assert [finder for finder in sys.meta_path if not hasattr(finder, "library")] == before
assert "torchvision" not in [getattr(finder, "library", "") for finder in sys.meta_path]
print(sorted(name for name in ("nms", "qnms") if hasattr(torch.ops.torchvision, name)))
"""


def test_an_extension_that_cannot_be_loaded_is_declared_and_the_guard_steps_aside(tmp_path: Path) -> None:
    fake_torchvision(tmp_path)
    command = [sys.executable, "-c", IMPORT.format(guard=""), str(tmp_path)]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert "torchvision::nms does not exist" in failed.stderr
    assert run(IMPORT.format(guard="import cl_cnaps"), tmp_path) == "['nms', 'qnms']"


def test_an_extension_that_is_not_there_is_declared_and_the_guard_is_armed_once(tmp_path: Path) -> None:
    guard = (
        "from cl_cnaps import before_import\n"
        "before_import.install()\n"
        "assert len(sys.meta_path) == len(before) + 3"
    )
    assert run(IMPORT.format(guard=guard), fake_torchvision(tmp_path, extension=None)) == "['nms', 'qnms']"


def test_looking_for_torchvision_imports_nothing_and_raises_nothing() -> None:
    """Also where there is no PyTorch, and however often; the import after it works."""
    run("""
        import importlib.util, sys
        import cl_cnaps
        sys.modules["torch"] = None
        for _ in range(2):
            assert importlib.util.find_spec("torchvision") is not None
        del sys.modules["torch"]
        assert "torch" not in sys.modules and "torchvision" not in sys.modules
        import torchvision
        assert importlib.util.find_spec("torchvision.ops") is not None
    """)


def test_an_extension_that_loads_declares_nothing(tmp_path: Path) -> None:
    """Loading stands for what a working extension does: it registers the operators itself."""
    output = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import cl_cnaps, torch
        calls = []
        define = torch.library.define
        def load(path):
            calls.append(str(path))
            define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.ops.load_library = load
        torch.library.define = lambda *a, **k: calls.append("declared")
        import torchvision
        print(calls == [sys.argv[1] + "/torchvision/_C.so"])
        """,
        fake_torchvision(tmp_path),
    )
    assert output == "True"


def test_operators_that_someone_else_declared_stay(tmp_path: Path) -> None:
    output = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import torch
        torch.library.define("torchvision::nms", "(Tensor a, Tensor b, float c) -> Tensor")
        import cl_cnaps, torchvision
        print(hasattr(torch.ops.torchvision, "qnms"))
        print("dets" in str(torch.ops.torchvision.nms.default._schema))
        """,
        fake_torchvision(tmp_path),
    )
    assert output.split() == ["True", "False"]


def test_after_torchvision_it_does_nothing() -> None:
    run("""
        import sys, types
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        before = list(sys.meta_path)
        import cl_cnaps
        assert [finder for finder in sys.meta_path if not hasattr(finder, "library")] == before
        assert "torchvision" not in [getattr(finder, "library", "") for finder in sys.meta_path]
        assert "torch" not in sys.modules
    """)


def test_without_torchvision_nothing_breaks() -> None:
    run("""
        import sys
        import cl_cnaps
        sys.path = [p for p in sys.path if "site-packages" not in p]
        try:
            import torchvision
        except ModuleNotFoundError as error:
            assert error.name == "torchvision"
        else:
            raise AssertionError("torchvision should not have been found")
        assert "torch" not in sys.modules
        from cl_cnaps.errors import ClCnapsError
    """)


def test_avalanche_never_reads_settings_that_another_process_is_writing(tmp_path: Path) -> None:
    """An empty file is what Avalanche's own first import leaves for a moment."""
    settings = tmp_path / ".avalanche" / "config.json"
    settings.parent.mkdir()
    settings.write_text("")
    script = f"""
        import os
        os.environ["HOME"] = {str(tmp_path)!r}
        import cl_cnaps
        from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
        print(default_dataset_location("mnist"))
    """
    assert run(script) == str(settings.parent / "data" / "mnist")
    settings.write_text('{"dataset_location": "elsewhere"}')
    assert run(script) == "elsewhere/mnist"


def test_what_few_programs_use_is_loaded_when_it_is_used() -> None:
    """The stand-in goes with the import; who kept it reaches the library, and so does a later import."""
    run("""
        import sys
        import cl_cnaps, timm, avalanche
        assert not {"wandb", "wandb.sdk", "gdown"} & set(sys.modules)
        from avalanche.evaluation.metrics import confusion_matrix
        from avalanche.benchmarks.datasets.cub200 import cub200
        kept, Image = confusion_matrix.wandb, confusion_matrix.wandb.Image
        import wandb, gdown
        assert kept is not wandb and Image is wandb.Image
        assert cub200.gdown.download is gdown.download
        import wandb.sdk
    """)


def test_metrics_of_avalanche_load_torchmetrics_when_they_are_made() -> None:
    run("""
        import sys, torch
        import cl_cnaps
        from avalanche.evaluation.metrics import TopkAccuracy
        assert not {"torchmetrics", "torchmetrics.functional"} & set(sys.modules)
        metric = TopkAccuracy(2)
        metric.update(torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]]), torch.tensor([1, 2]), 0)
        assert metric.result()[0] == 0.5
    """)


def test_a_stand_in_is_used_while_others_are_still_imported(tmp_path: Path) -> None:
    """As by a second thread: all stand-ins of the package step aside."""
    package = tmp_path / "avalanche"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import torchmetrics\nfrom torchmetrics.functional import accuracy\n"
        "import torch\nfound = accuracy(torch.ones(2, dtype=int), torch.ones(2, dtype=int), task='binary')\n"
        "Metric = torchmetrics.Metric\n"
    )
    output = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import cl_cnaps, avalanche, torchmetrics
        print(float(avalanche.found), avalanche.Metric is torchmetrics.Metric)
        """,
        tmp_path,
    )
    assert output == "1.0 True"


def test_the_default_model_needs_neither_timm_nor_the_compiler() -> None:
    """Together they take longer to import than PyTorch; what asks for the compiler gets it."""
    run("""
        import sys
        from cl_cnaps import SimpleCnapsStrategy
        SimpleCnapsStrategy()
        assert not {"timm", "torch._dynamo", "torch._dynamo.utils"} & set(sys.modules)
        import torchvision
        asked = sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu")
        from torch._dynamo.utils import is_compile_supported
        assert asked == is_compile_supported("cpu")
        import torch
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
    """)


def test_a_library_that_is_missing_is_missed_when_it_is_used(tmp_path: Path) -> None:
    package = tmp_path / "timm"
    package.mkdir()
    (package / "__init__.py").write_text("import wandb\n")
    output = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import cl_cnaps, timm
        sys.path = [path for path in sys.path if "site-packages" not in path]
        try:
            timm.wandb.log({})
        except ModuleNotFoundError as error:
            print(error.name)
        """,
        tmp_path,
    )
    assert output == "wandb"
