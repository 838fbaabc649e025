"""Embedding images: folded and compiled against the un-folded form and the bare backbone.

The un-folded functional form is the network with its batch-norms' weights replaced, in PyTorch's default memory
format, in a process with PyTorch as it comes; the same in this process, which keeps freed memory as every command does,
and in channels_last are reported beside it. The bare backbone has no FiLM at all; it runs in this process. Compiling is
measured with an empty cache and again from the cache, in processes of their own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cl_cnaps.benchmarking.figures import Figure
from cl_cnaps.benchmarking.modulated import random_film
from cl_cnaps.benchmarking.stock_process import StockProcess, serve
from cl_cnaps.benchmarking.timing import interleaved, milliseconds, seconds
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.backbones import Backbone, load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model
from cl_cnaps.models.compiling import compile_network
from cl_cnaps.models.film import modulated_forward
from cl_cnaps.models.folding import LARGEST_BATCH
from cl_cnaps.torch_setup import set_up_torch

IMAGES = 256


@torch.no_grad()
def measure(quick: bool) -> Iterator[Figure]:
    """The default backbone, then the paper's."""
    for name in ("efficientnet-lite0",) if quick else ("efficientnet-lite0", "resnet18"):
        yield from _backbone(name, 64 if quick else IMAGES, 2 if quick else 5, compiled=not quick)


def _backbone(name: str, n_images: int, rounds: int, *, compiled: bool) -> Iterator[Figure]:
    with StockProcess("cl_cnaps.benchmarking.embed", "functional", name, str(n_images)) as stock:
        yield from _forms(name, n_images, rounds, stock, compiled=compiled)


def _forms(name: str, n_images: int, rounds: int, stock: StockProcess, *, compiled: bool) -> Iterator[Figure]:
    backbone = load_backbone(name, weights="random")
    model = make_model(CnapsConfig.for_backbone("simple", name), backbone)
    film = random_film(backbone, 0)
    prepared = _batches(backbone, n_images)
    folded = model.fold(film)
    forms: dict[str, Callable[[], object]] = {
        "functional": stock,
        "functional_memory_kept": _functional(name, n_images),
        "functional_channels_last": lambda: [modulated_forward(backbone, film, batch) for batch in prepared],
        "bare_channels_last": lambda: [backbone(batch) for batch in prepared],
        "folded": lambda: [folded(batch) for batch in prepared],
    }
    if compiled:
        compilation = compile_network(folded, backbone.info.image_size)
        if compilation.run is None:
            raise ClCnapsError(compilation.says)
        program = compilation.of(folded)
        forms["compiled"] = lambda: [program(batch) for batch in prepared]
    times = interleaved(forms, rounds)
    details = milliseconds(times) | {"images": n_images, "batch": LARGEST_BATCH}
    ratio = {key: times["functional"] / value for key, value in times.items()}
    bare = times["bare_channels_last"] / times["folded"]
    yield Figure("embed", f"{name}: folded, to the bare backbone", round(bare, 2), bar=0.9, details=details)
    yield Figure("embed", f"{name}: folded, to the un-folded form", round(ratio["folded"], 2), bar=1.5)
    kept = times["functional_memory_kept"] / times["folded"]
    yield Figure("embed", f"{name}: folded, to the un-folded form with memory kept too", round(kept, 2))
    both = times["functional_channels_last"] / times["folded"]
    yield Figure("embed", f"{name}: folded, to that in channels_last", round(both, 2))
    if not compiled:
        return
    yield Figure("embed", f"{name}: compiled, to the un-folded form", round(ratio["compiled"], 2), bar=2.2)
    gain = times["folded"] / times["compiled"]
    yield Figure("embed", f"{name}: compiled, to the folded form", round(gain, 2))
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-compiled-") as cache:
        cold, warm = (_compile_seconds(name, cache) for _ in range(2))
    yield Figure("embed", f"{name}: compiling, nothing cached", round(cold, 1), "s")
    yield Figure("embed", f"{name}: compiling, from the cache", round(warm, 1), "s")
    saved = (times["folded"] - times["compiled"]) / n_images
    if saved > 0:
        pays = math.ceil(cold / saved)
        yield Figure(
            "embed", f"{name}: compiling pays from", pays, "images", details={"ms_saved": 1000 * saved}
        )


def _batches(backbone: Backbone, n_images: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    side = backbone.info.image_size
    images = torch.randint(0, 256, (n_images, 3, side, side), dtype=torch.uint8, generator=generator)
    return list(torch.split(backbone.prepare(images), LARGEST_BATCH))


def _functional(name: str, n_images: int) -> Callable[[], list[Tensor]]:
    """The un-folded form in PyTorch's default memory format."""
    backbone = load_backbone(name, weights="random")
    film = random_film(backbone, 0)
    batches = [batch.contiguous() for batch in _batches(backbone, n_images)]
    backbone.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return lambda: [modulated_forward(backbone, film, batch) for batch in batches]


def _compile_seconds(name: str, cache: str) -> float:
    command = [
        sys.executable,
        "-m",
        "cl_cnaps.benchmarking.embed",
        "compile",
        name,
        str(torch.get_num_threads()),
    ]
    environment = {**os.environ, "CL_CNAPS_CACHE": cache}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ClCnapsError(done.stderr)
    taken: float = json.loads(done.stdout)
    return taken


def _in_a_process_of_its_own() -> None:
    """Serve the functional form, or compile and print the seconds."""
    what, name, number = sys.argv[1:]
    if what == "functional":
        work = _functional(name, int(number))
        with torch.no_grad():
            serve(lambda: len(work()))
        return
    torch.set_num_threads(int(number))
    set_up_torch()
    backbone = load_backbone(name, weights="random")
    model = make_model(CnapsConfig.for_backbone("simple", name), backbone)
    folded = model.fold(model.adapt(None))
    print(json.dumps(seconds(lambda: compile_network(folded, backbone.info.image_size))))


if __name__ == "__main__":
    _in_a_process_of_its_own()
