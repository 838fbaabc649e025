"""Very many classes: memory of few directions per class and a shortlist of candidates, against the exact classifier.

Accuracy on Split-CIFAR-100 (100 shots) and on all classes of Omniglot (15 shots), with the default model, against the
bytes that a class takes. Then 1,000, 10,000 and 100,000 made-up classes of 1,280 features, 20 shots each: a class is
drawn around the statistics of real ones (mean: the distribution of CIFAR-100's class means, and of images about them;
scatter: that of one of its classes). 100,000 classes are learned in a process of its own, whose memory is measured.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.stock_process import StockProcess, serve
from benchmarks.speed.timing import ratio, seconds
from cl_cnaps.continual.benchmarks import StreamConfig, plan_stream
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.stream import Stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import MissingDataError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import features_model, load_model
from cl_cnaps.torch_setup import release_spare_memory

RANKS = (1, 2, 4, 8, 16, 32, None)
BAR_RANK = 32
STORED_RANK, CANDIDATES, SHOTS, QUERIES, CLASSES_A_TASK = 12, 256, 20, 1000, 1000
REPEATS = 3
_SPREAD_OF_CENTRES = 0.5
"""How far class means lie from those of the real classes' distribution, in deviations of an image from its class."""


class Features(NamedTuple):
    """A stream as features: one task after the other."""

    support: list[Tensor]
    support_labels: list[Tensor]
    query: Tensor
    query_labels: Tensor


def measure(quick: bool) -> Iterator[Figure]:
    """Accuracy against memory; agreement; memory and time of very many classes."""
    model = load_model("simple", device="cpu", image_size=32 if quick else None).model
    names = ("mnist",) if quick else ("cifar100", "omniglot")
    real = None
    for name in names:
        try:
            features = stream_features(name, model, quick=quick)
        except MissingDataError:
            continue
        real = features if real is None else real
        yield from _accuracy(name, features, (2, BAR_RANK, None) if quick else RANKS)
    assert real is not None
    yield from _many(Generator.around(real), quick=quick)


def stream_features(name: str, model: CnapsModel, *, quick: bool) -> Features:
    """Features of a stream under the First encoding, embedded once."""
    shots, queries, classes_a_task = {
        "omniglot": (15, 5, 100),
        "cifar100": (100, 40, 10),
        "mnist": (20, 10, 2),
    }[name]
    if quick:
        shots, queries = 20, 10
    config = StreamConfig(name, shots, queries, classes_a_task)
    stream = plan_stream(config, open_source(name, download=False)).stream(0, model.backbone.info.image_size)
    return embedded(stream, model)


@torch.no_grad()
def embedded(stream: Stream, model: CnapsModel) -> Features:
    """Features of all images, adapted to the first task."""
    first = stream.tasks[0]
    network = model.fold(model.adapt(model.encode(first.support_images, first.support_labels)))
    return Features(
        [model.embed_folded(task.support_images, network) for task in stream.tasks],
        [task.support_labels for task in stream.tasks],
        torch.cat([model.embed_folded(task.query_images, network) for task in stream.tasks]),
        torch.cat([task.query_labels for task in stream.tasks]),
    )


def learner(width: int, rank: int | None, shortlist: int | None = None) -> ContinualCnaps:
    """Simple CNAPS on given features."""
    config = ContinualConfig(memory_rank=rank, shortlist=shortlist)
    return ContinualCnaps(features_model("simple", width).float(), config)


@torch.no_grad()
def answers(continual: ContinualCnaps, query: Tensor) -> Tensor:
    """The class of each query."""
    keys = continual.memory.keys
    labels = torch.tensor([key.label for key in keys])
    parts = [continual.stored_logits(part, keys).argmax(dim=1) for part in torch.split(query, 1000)]
    return labels[torch.cat(parts)]


def _accuracy(name: str, features: Features, ranks: tuple[int | None, ...]) -> Iterator[Figure]:
    """Final accuracy and bytes per class at each rank, and what the rank with a bar loses."""
    curve: list[dict[str, Any]] = []
    for rank in ranks:
        continual = learner(features.query.shape[1], rank)
        for task, (support, labels) in enumerate(zip(features.support, features.support_labels, strict=True)):
            continual.learn(support, labels, task)
        right = (answers(continual, features.query) == features.query_labels).double().mean()
        pooled = continual.memory.within_RD
        of_classes = continual.memory.nbytes() - (0 if pooled is None else pooled.nbytes)
        curve.append(
            {
                "rank": rank,
                "accuracy": round(100 * float(right), 2),
                "bytes_per_class": round(of_classes / len(continual.memory.keys)),
            }
        )
    by_rank = {point["rank"]: point for point in curve}
    whole, small = by_rank[None], by_rank[BAR_RANK]
    lost = round(whole["accuracy"] - small["accuracy"], 2)
    details = {"curve": curve, "queries": len(features.query)}
    what = f"{name}: accuracy lost with {BAR_RANK} directions a class"
    yield Figure("classes", what, lost, "points", bar=0.3, at_least=False, details=details)


class Generator(NamedTuple):
    """Draws classes around the statistics of real ones."""

    mean_D: Tensor
    centres_JD: Tensor
    """Rows whose Gram is the covariance of class means."""
    scatters: list[Tensor]
    """Rows whose Gram is the covariance within each real class."""

    @staticmethod
    def around(features: Features) -> Generator:
        """Take the statistics of a stream's classes."""
        support, labels = torch.cat(features.support), torch.cat(features.support_labels)
        parts = [support[labels == label] for label in labels.unique()]
        means = torch.stack([part.mean(dim=0) for part in parts])
        centred = (means - means.mean(dim=0)) / len(means) ** 0.5
        scatters = [(part - part.mean(dim=0)) / len(part) ** 0.5 for part in parts]
        return Generator(means.mean(dim=0), centred, scatters)

    def task(self, number: int, classes: int, images: int) -> Tensor:
        """Features of the classes of a task, K x N x D: a function of the task's number."""
        generator = torch.Generator().manual_seed(number)
        normal = partial(torch.randn, generator=generator)
        which = torch.randint(len(self.scatters), (2, classes), generator=generator)
        centres = self.mean_D + normal(classes, len(self.centres_JD)) @ self.centres_JD
        made = []
        for k in range(classes):
            near, own = self.scatters[int(which[0, k])], self.scatters[int(which[1, k])]
            centre = centres[k] + _SPREAD_OF_CENTRES * normal(len(near)) @ near
            made.append(centre + normal(images, len(own)) @ own)
        return torch.stack(made)


def fill(
    continual: ContinualCnaps, generator: Generator, classes: int, queries: int
) -> tuple[Tensor, Tensor]:
    """Learn made-up classes in tasks; returns queries, drawn evenly over the tasks, and their labels."""
    query, labels = [], []
    tasks = -(-classes // CLASSES_A_TASK)
    for task in range(tasks):
        number = min(CLASSES_A_TASK, classes - task * CLASSES_A_TASK)
        asked = queries // tasks + (task < queries % tasks)
        # Every query is one more image of a class of its own, as long as there are classes enough.
        features = generator.task(task, number, SHOTS + -(-asked // number))
        own = torch.arange(number) + task * CLASSES_A_TASK
        continual.learn(features[:, :SHOTS].flatten(0, 1), own.repeat_interleave(SHOTS), task)
        query.append(features[:, SHOTS:].flatten(0, 1)[:asked].clone())
        labels.append(own.repeat_interleave(features.shape[1] - SHOTS)[:asked])
        release_spare_memory()
    return torch.cat(query), torch.cat(labels)


def _many(generator: Generator, *, quick: bool) -> Iterator[Figure]:
    rank = 4 if quick else STORED_RANK
    for classes in (50, 100) if quick else (1_000, 10_000):
        yield _agreement(generator, classes, rank)
        release_spare_memory(0)
    few, many = (50, 100) if quick else (10_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-classes-") as folder:
        path = Path(folder) / "statistics.pt"
        torch.save(generator._asdict(), path)
        arguments = (str(rank), str(path))
        with (
            StockProcess("benchmarks.speed.classes", str(few), *arguments) as small,
            StockProcess("benchmarks.speed.classes", str(many), *arguments) as large,
        ):
            rounds = [(small(), large()) for _ in range(1 if quick else 1 + REPEATS)]
    last = rounds[-1][1]
    details = {key: value for key, value in last.items() if key != "seconds"}
    yield Figure(
        "classes",
        f"{many} classes of {SHOTS} shots, {rank} directions a class: memory of the process",
        last["peak_gb"],
        "GB",
        bar=6.0,
        at_least=False,
        details=details,
    )
    taken = list(zip(*(rounds[1:] or rounds), strict=True))
    value, spread = ratio(*([one["seconds"] for one in of_size] for of_size in reversed(taken)))
    yield Figure(
        "classes",
        f"{QUERIES} queries among {many} classes, to the same among {few}",
        value,
        bar=1.5,
        at_least=False,
        details={**spread, "seconds": [[round(one["seconds"], 2) for one in pair] for pair in rounds]},
    )


def _agreement(generator: Generator, classes: int, rank: int) -> Figure:
    """How often stored classes with a shortlist answer as all images' statistics with all classes scored do."""
    width = len(generator.mean_D)
    exact = learner(width, None)
    query, labels = fill(exact, generator, classes, QUERIES)
    expected = answers(exact, query)
    del exact
    found = {}
    for name, shortlist in (("all scored", None), ("shortlist", min(CANDIDATES, classes // 2))):
        stored = learner(width, rank, shortlist)
        fill(stored, generator, classes, QUERIES)
        found[name] = answers(stored, query)
    details = {f"accuracy, {name}": _percent(given == labels) for name, given in found.items()}
    details |= {
        "accuracy, exact": _percent(expected == labels),
        "shortlist to all scored": _percent(found["shortlist"] == found["all scored"]),
    }
    what = f"{classes} classes: agreement with the exact classifier"
    return Figure("classes", what, _percent(found["shortlist"] == expected), "%", bar=99.5, details=details)


def _percent(right: Tensor) -> float:
    return round(100 * float(right.double().mean()), 2)


def _serve(classes: int, rank: int, path: Path) -> None:
    """Learn so many classes, then answer queries, in a process that does not keep freed memory."""
    generator = Generator(**torch.load(path, weights_only=True))
    continual = learner(len(generator.mean_D), rank, min(CANDIDATES, classes // 2))
    spent = {"learn_s": 0.0, "prepare_s": 0.0}
    query = labels = torch.empty(0)

    def learn() -> None:
        nonlocal query, labels
        query, labels = fill(continual, generator, classes, QUERIES)

    spent["learn_s"] = round(seconds(learn), 1)
    spent["prepare_s"] = round(seconds(lambda: answers(continual, query[:1])), 1)

    def once() -> dict[str, float]:
        found = torch.empty(0)

        def answer() -> None:
            nonlocal found
            found = answers(continual, query)

        taken = seconds(answer)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "seconds": taken,
            "peak_gb": round(peak / 1e9, 2),
            "memory_gb": round(continual.memory_bytes() / 1e9, 2),
            "accuracy": _percent(found == labels),
            **spent,
        }

    serve(once)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
