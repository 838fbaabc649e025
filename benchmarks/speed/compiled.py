"""The folded network in a compiled inference library, OpenVINO or ONNX Runtime, against PyTorch's own.

EfficientNet-Lite0 folded for one FiLM setting at 96, 128 and 224 pixels, end to end: from images as they are stored to
features, in batches of 64, the same threads, all in turns. Features must be equal to 1e-4 of their size. `convert_s` is
what converting and compiling take once for a FiLM setting, and `pays_from` the number of images from which that is
made up for. A library that is not installed is left out.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.speed.figures import Figure
from benchmarks.speed.modulated import random_film
from benchmarks.speed.timing import ratio, turns
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model

SIZES, BATCH, IMAGES, REPEATS = (96, 128, 224), 64, 256, 3
_SAME = 1e-4
_BAR = 1.3
_LIBRARIES = {"openvino": "OpenVINO", "onnxruntime": "ONNX Runtime"}

Run = Callable[[Tensor], Any]


@torch.no_grad()
def measure(quick: bool) -> Iterator[Figure]:
    """Every library that is installed at every size."""
    libraries = [library for library in _LIBRARIES if find_spec(library) is not None]
    for size in (32,) if quick else SIZES:
        yield from _compared(libraries, size, BATCH if quick else IMAGES, 1 if quick else REPEATS)


def _compared(libraries: list[str], size: int, number: int, repeats: int) -> Iterator[Figure]:
    backbone = load_backbone("efficientnet-lite0", image_size=size)
    model = make_model(CnapsConfig.for_backbone("simple", "efficientnet-lite0"), backbone)
    folded = model.fold(random_film(backbone, 0))
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (number, 3, size, size), dtype=torch.uint8, generator=generator)
    batch = backbone.prepare(images[:BATCH])
    runs: dict[str, Run] = {"pytorch": folded}
    convert, difference = {}, {}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="cl-cnaps-compiled-") as folder:
        warnings.simplefilter("ignore")
        for library in libraries:
            start = time.perf_counter()
            runs[library] = _converted(library, folded.network, batch, Path(folder))
            convert[library] = time.perf_counter() - start
            others = batch.flip(0, 3)  # not the images that it was converted with
            expected = folded(others)
            difference[library] = float((runs[library](others) - expected).abs().max() / expected.abs().max())
            if not difference[library] <= _SAME:
                raise ClCnapsError(
                    f"{library} at {size} pixels differs from PyTorch by {difference[library]:.1e}"
                )

        def embedding(run: Run) -> Callable[[], None]:
            def work() -> None:
                for part in torch.split(images, BATCH):
                    run(backbone.prepare(part))

            return work

        taken = turns({name: embedding(run) for name, run in runs.items()}, repeats)
    per_image = {name: statistics.median(spent) / number for name, spent in taken.items()}
    for library in libraries:
        value, spread = ratio(taken["pytorch"], taken[library])
        saved = per_image["pytorch"] - per_image[library]
        details = {
            **spread,
            "images_per_s": {name: round(1 / per_image[name]) for name in ("pytorch", library)},
            "convert_s": round(convert[library], 1),
            "pays_from": round(convert[library] / saved) if saved > 0 else None,
            "difference": difference[library],
        }
        what = f"{_LIBRARIES[library]} at {size} pixels, to the folded network in PyTorch"
        yield Figure("compiled", what, value, bar=_BAR, details=details)


def _converted(library: str, network: nn.Module, batch: Tensor, folder: Path) -> Run:
    threads = torch.get_num_threads()
    example = batch.contiguous()
    if library == "openvino":
        import openvino

        core = openvino.Core()
        graph = openvino.convert_model(network, example_input=example, input=[tuple(example.shape)])
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
