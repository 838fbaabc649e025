"""The folded network in a compiled inference library, OpenVINO or ONNX Runtime, against PyTorch's own.

EfficientNet-Lite0 folded for one FiLM setting, batches of 64 images at 96, 128 and 224 pixels, the same threads, in
turns. Features must be equal to 1e-4 of their size. `convert_s` is what converting and compiling take once for a FiLM
setting. A library that is not installed is left out.
"""

from __future__ import annotations

import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.speed.figures import Figure
from benchmarks.speed.modulated import random_film
from benchmarks.speed.timing import ratio, seconds, turns
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model

SIZES, BATCH = (96, 128, 224), 64
_SAME = 1e-4
_BAR = 1.3
_LIBRARIES = {"openvino": "OpenVINO", "onnxruntime": "ONNX Runtime"}

Run = Callable[[Tensor], Any]


@torch.no_grad()
def measure(quick: bool) -> Iterator[Figure]:
    """Every library that is installed at every size."""
    for size in (32,) if quick else SIZES:
        for library in _LIBRARIES:
            if find_spec(library) is not None:
                yield _compared(library, size, 2 if quick else 25)


def _compared(library: str, size: int, rounds: int) -> Figure:
    backbone = load_backbone("efficientnet-lite0", image_size=size)
    model = make_model(CnapsConfig.for_backbone("simple", "efficientnet-lite0"), backbone)
    folded = model.fold(random_film(backbone, 0))
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (BATCH, 3, size, size), dtype=torch.uint8, generator=generator)
    batch = backbone.prepare(images)
    made: list[Run] = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="cl-cnaps-compiled-") as folder:
        warnings.simplefilter("ignore")
        convert = seconds(lambda: made.append(_converted(library, folded.network, batch, Path(folder))))
        (compiled,) = made
        others = batch.flip(0, 3)  # not the images that it was converted with
        expected = folded(others)
        difference = float((compiled(others) - expected).abs().max() / expected.abs().max())
        if not difference <= _SAME:
            raise ClCnapsError(f"{library} at {size} pixels differs from PyTorch by {difference:.1e}")
        forms = {
            "pytorch": lambda: folded(batch),
            "compiled": lambda: compiled(batch),
        }
        taken = turns(forms, rounds)
    value, spread = ratio(taken["pytorch"], taken["compiled"])
    details = {
        **spread,
        "images_per_s": {name: round(BATCH / statistics.median(spent)) for name, spent in taken.items()},
        "convert_s": round(convert, 1),
        "difference": difference,
    }
    what = f"{_LIBRARIES[library]} at {size} pixels, to the folded network in PyTorch"
    return Figure("compiled", what, value, bar=_BAR, details=details)


def _converted(library: str, network: nn.Module, batch: Tensor, folder: Path) -> Run:
    threads = torch.get_num_threads()
    example = batch.contiguous()
    if library == "openvino":
        import openvino

        core = openvino.Core()
        graph = openvino.convert_model(network, example_input=example)
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = core.compile_model(graph, "CPU", settings)
        return lambda images: torch.from_numpy(compiled(images.contiguous().numpy())[0])
    import onnxruntime

    path = folder / "network.onnx"
    torch.onnx.export(
        network,
        (example,),
        str(path),
        input_names=["images"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.contiguous().numpy()})[0])
