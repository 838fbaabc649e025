"""Very many classes: memory of few directions per class and a shortlist of candidates, against the exact classifier.

1,000, 10,000 and 100,000 made-up classes of 1,280 features, 20 shots each, drawn around the statistics of CIFAR-100's
classes under the default model at 96 pixels, see `Generator`. At 20 shots no direction is left out: rows are kept in 8
bits, and it is the shortlist that may answer differently. 100,000 classes are learned in a process of its own, whose
memory is measured. Accuracy on real classes with fewer directions is measured by `benchmarks/class_memory.py`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.machine import peak_bytes
from benchmarks.speed.stock_process import StockProcess, serve
from benchmarks.speed.timing import ratio, seconds
from cl_cnaps.continual.benchmarks import StreamConfig, plan_stream
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.stream import Stream
from cl_cnaps.data import open_source
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import features_model, load_model
from cl_cnaps.torch_setup import release_spare_memory

RANK, CANDIDATES, SHOTS, QUERIES, CLASSES_A_TASK = 32, 512, 20, 1000, 1000
REPEATS = 3
_QUERIES_AT_ONCE = 250
SPACINGS = {"half as far apart": 0.5, "as far apart as real ones": 1.0}
"""Distance of class means, to that of real ones. Gaussians as far apart as real means are told apart more easily than
real classes; at half of it the exact classifier is right for about as many queries among 1,000 made-up classes as
among the 100 real ones. Memory and time are measured with the nearer ones."""
_DIRECTIONS = 256


class Features(NamedTuple):
    """A stream as features: one task after the other."""

    support: list[Tensor]
    support_labels: list[Tensor]
    query: Tensor
    query_labels: Tensor


def measure(quick: bool) -> Iterator[Figure]:
    """Agreement with the exact classifier, then memory and time of very many classes."""
    model = load_model("simple", device="cpu", image_size=32 if quick else 96).model
    config = StreamConfig("mnist", 20, 1, 2) if quick else StreamConfig("cifar100", 60, 1, 10)
    generator = Generator.around(stream_features(config, model))
    for words, spacing in SPACINGS.items():
        for classes in (50, 100) if quick else (1_000, 10_000):
            yield from _agreement(generator.spaced(spacing), classes, words)
            release_spare_memory(0)
    yield from _many(generator.spaced(SPACINGS["half as far apart"]), quick=quick)


def stream_features(config: StreamConfig, model: CnapsModel) -> Features:
    """Features of a stream under the First encoding, embedded once."""
    source = open_source(config.benchmark, download=False)
    return embedded(plan_stream(config, source).stream(0, model.backbone.info.image_size), model)


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
    parts = [
        continual.stored_logits(part, keys).argmax(dim=1) for part in torch.split(query, _QUERIES_AT_ONCE)
    ]
    return labels[torch.cat(parts)]


class Generator(NamedTuple):
    """Draws Gaussian classes around the statistics of real ones.

    A class's mean is drawn from the distribution of real class means; its covariance is half that of one real class
    and half that of all of them, so that it has full rank.
    """

    mean_D: Tensor
    centres_JD: Tensor
    """Rows whose Gram is the covariance of class means."""
    own_JND: Tensor
    """Rows whose Gram is the covariance within each real class."""
    pooled_RD: Tensor
    """Rows for the largest directions of the mean of those."""
    rest_D: Tensor
    """Deviations of the features in its other directions."""

    @staticmethod
    def around(features: Features) -> Generator:
        """Take the statistics of a stream's classes, which have equally many images."""
        support, labels = torch.cat(features.support), torch.cat(features.support_labels)
        images_JND = torch.stack([support[labels == label] for label in labels.unique()])
        means_JD = images_JND.mean(dim=1)
        mean_D, (classes, images) = means_JD.mean(dim=0), images_JND.shape[:2]
        own_JND = (images_JND - means_JD[:, None]) / (images - 1) ** 0.5
        rows_RD = own_JND.flatten(0, 1) / classes**0.5
        values_D, vectors_DD = torch.linalg.eigh(rows_RD.T @ rows_RD)
        values_D = values_D.clamp_min(0)
        pooled_RD = (vectors_DD * values_D.sqrt())[:, -_DIRECTIONS:].T
        rest_D = (rows_RD.square().sum(dim=0) - pooled_RD.square().sum(dim=0)).clamp_min(0).sqrt()
        centres_JD = (means_JD - mean_D) / (classes - 1) ** 0.5
        return Generator(mean_D, centres_JD, own_JND, pooled_RD, rest_D)

    def spaced(self, distance: float) -> Generator:
        """The same with class means at so many times their distance."""
        return self._replace(centres_JD=distance * self.centres_JD)

    def task(self, number: int, classes: int, images: int) -> Tensor:
        """Features of the classes of a task, K x N x D: a function of the task's number."""
        normal = partial(torch.randn, generator=torch.Generator().manual_seed(number))
        made_KND = normal(classes, images, len(self.mean_D)) * self.rest_D
        made_KND += normal(classes, images, len(self.pooled_RD)) @ self.pooled_RD
        weights_KNJ = normal(classes, images, self.own_JND.shape[1])
        for k in range(classes):
            made_KND[k] += weights_KNJ[k] @ self.own_JND[(number + k) % len(self.own_JND)]
        centres_KD = self.mean_D + normal(classes, len(self.centres_JD)) @ self.centres_JD
        return made_KND.mul_(0.5**0.5).add_(centres_KD[:, None])


def fill(
    continual: ContinualCnaps, generator: Generator, classes: int, queries: int
) -> tuple[Tensor, Tensor]:
    """Learn made-up classes in tasks; returns queries, drawn evenly over the tasks, and their labels."""
    query, labels = [], []
    tasks = -(-classes // CLASSES_A_TASK)
    for task in range(tasks):
        number = min(CLASSES_A_TASK, classes - task * CLASSES_A_TASK)
        own_queries = queries // tasks + (task < queries % tasks)
        # Every query is one more image of a class of its own, as long as there are classes enough.
        features = generator.task(task, number, SHOTS + -(-own_queries // number))
        own = torch.arange(number) + task * CLASSES_A_TASK
        continual.learn(features[:, :SHOTS].flatten(0, 1), own.repeat_interleave(SHOTS), task)
        query.append(features[:, SHOTS:].flatten(0, 1)[:own_queries].clone())
        labels.append(own.repeat_interleave(features.shape[1] - SHOTS)[:own_queries])
        release_spare_memory()
    return torch.cat(query), torch.cat(labels)


def _many(generator: Generator, *, quick: bool) -> Iterator[Figure]:
    few, many = (50, 100) if quick else (10_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-classes-") as folder:
        path = Path(folder) / "statistics.pt"
        torch.save(generator._asdict(), path)
        with (
            StockProcess("benchmarks.speed.classes", str(few), str(path)) as small,
            StockProcess("benchmarks.speed.classes", str(many), str(path)) as large,
        ):
            rounds = [(small(), large()) for _ in range(1 if quick else 1 + REPEATS)]
    last = rounds[-1][1]
    details = {key: value for key, value in last.items() if key != "seconds"}
    yield Figure(
        "classes",
        f"{many} classes of {SHOTS} shots, at most {RANK} directions a class: memory of the process",
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


def _agreement(generator: Generator, classes: int, spacing: str) -> Iterator[Figure]:
    """How often stored classes answer as all images' statistics do: all classes scored, and those of a shortlist."""
    width = len(generator.mean_D)
    exact = learner(width, None)
    query, labels = fill(exact, generator, classes, QUERIES)
    expected = answers(exact, query)
    del exact
    for shortlist, scored in ((None, "all scored"), (min(CANDIDATES, classes // 2), "with a shortlist")):
        stored = learner(width, RANK, shortlist)
        fill(stored, generator, classes, QUERIES)
        found = answers(stored, query)
        details: dict[str, Any] = {
            "accuracy": _percent(found == labels),
            "accuracy, exact": _percent(expected == labels),
            "directions": RANK,
            "candidates": shortlist,
        }
        what = f"{classes} classes {spacing}, {scored}: agreement with the exact classifier"
        yield Figure("classes", what, _percent(found == expected), "%", bar=99.5, details=details)


def _percent(right: Tensor) -> float:
    return round(100 * float(right.double().mean()), 2)


def _serve(classes: int, path: Path) -> None:
    """Learn so many classes, then answer queries, in a process that does not keep freed memory."""
    generator = Generator(**torch.load(path, weights_only=True))
    continual = learner(len(generator.mean_D), RANK, min(CANDIDATES, classes // 2))
    query = labels = found = torch.empty(0)

    def learn() -> None:
        nonlocal query, labels
        query, labels = fill(continual, generator, classes, QUERIES)

    def answer() -> None:
        nonlocal found
        found = answers(continual, query)

    spent = {"learn_s": round(seconds(learn), 1)}
    spent["prepare_s"] = round(seconds(lambda: answers(continual, query[:1])), 1)

    def once() -> dict[str, float]:
        taken = seconds(answer)
        return {
            "seconds": taken,
            "peak_gb": round(peak_bytes() / 1e9, 2),
            "memory_gb": round(continual.memory_bytes() / 1e9, 2),
            "accuracy": _percent(found == labels),
            **spent,
        }

    serve(once)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
