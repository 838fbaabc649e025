"""Embedding images: the folded backbone against the un-folded form and the bare backbone.

The un-folded functional form is the network with its batch-norms' weights replaced, in PyTorch's default memory
format, in a process with PyTorch as it comes; the same in this process, which keeps freed memory as every command does,
and in channels_last are reported beside it. The bare backbone has no FiLM at all; it runs in this process. What a side
of images costs is measured with the folded default backbone, all sizes in turns.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.modulated import random_film
from benchmarks.speed.stock_process import StockProcess, serve
from benchmarks.speed.timing import interleaved, milliseconds, turns
from cl_cnaps.models.backbones import Backbone, load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model
from cl_cnaps.models.film import LARGEST_BATCH, modulated_forward

IMAGES = 256
SIZES = (64, 96, 128, 160, 224)


@torch.no_grad()
def measure(quick: bool) -> Iterator[Figure]:
    """The default backbone, then the paper's."""
    for name in ("efficientnet-lite0",) if quick else ("efficientnet-lite0", "resnet18"):
        yield from _backbone(name, 64 if quick else IMAGES, 2 if quick else 5)
    yield from _sizes(SIZES[:2] if quick else SIZES, 64 if quick else IMAGES, 2 if quick else 5)


def _backbone(name: str, n_images: int, rounds: int) -> Iterator[Figure]:
    with StockProcess("benchmarks.speed.embed", name, str(n_images)) as stock:
        yield from _forms(name, n_images, rounds, stock)


def _forms(name: str, n_images: int, rounds: int, stock: StockProcess) -> Iterator[Figure]:
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


def _sizes(sizes: Sequence[int], n_images: int, rounds: int) -> Iterator[Figure]:
    forms: dict[str, Callable[[], object]] = {}
    for size in sizes:
        backbone = load_backbone("efficientnet-lite0", weights="random", image_size=size)
        model = make_model(CnapsConfig.for_backbone("simple", "efficientnet-lite0"), backbone)
        forms[str(size)] = partial(_embed, model.fold(random_film(backbone, 0)), _batches(backbone, n_images))
    taken = turns(forms, rounds)
    for size, spent in taken.items():
        rates = sorted(n_images / seconds for seconds in spent)
        what = f"efficientnet-lite0: folded, images of {size} pixels"
        spread = {"spread": [round(rates[0]), round(rates[-1])]}
        yield Figure("embed", what, round(statistics.median(rates)), "a second", details=spread)


def _embed(network: Callable[[Tensor], Tensor], batches: Sequence[Tensor]) -> list[Tensor]:
    return [network(batch) for batch in batches]


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


if __name__ == "__main__":
    work = _functional(sys.argv[1], int(sys.argv[2]))
    with torch.no_grad():
        serve(lambda: len(work()))
