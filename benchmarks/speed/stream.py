"""A whole Split-MNIST stream against the textbook way, loading and transforming included.

Five tasks, First encoding, ResNet-18 at 84 pixels with random weights. The textbook way embeds every old query again
after every task, eagerly, in PyTorch's default memory format, in batches of 256 as the authors do, with FiLM as extra
layers and a dense covariance for each class, that of its own task as in the paper, in a process with PyTorch as it
comes. Both must reach the same accuracy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.modulated import FilmLayers
from benchmarks.speed.stock_process import StockProcess, serve
from benchmarks.speed.textbook import dense_covariances, dense_logits
from benchmarks.speed.timing import ratio, turns
from benchmarks.speed.transforms import transformed
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, plan_stream
from cl_cnaps.continual.stream import run_stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import FoldedNetwork
from cl_cnaps.models.loading import load_model

BATCH = 256
NATIVE = 28
"""Side of a digit as it lies on disk."""
_SAME = 0.02
"""Largest difference of the final accuracy: features of random weights are close calls."""


def measure(quick: bool) -> Iterator[Figure]:
    """The learner against the textbook way, in turns."""
    shots = 10 if quick else 100
    with StockProcess("benchmarks.speed.stream", str(shots)) as stock:
        yield from _against(stock, shots, quick=quick)


def _made(shots: int) -> tuple[StreamPlan, CnapsModel]:
    model = load_model(
        "simple", backbone="resnet18", backbone_weights="random", weights="none", device="cpu"
    ).model
    return plan_stream(StreamConfig("split-mnist", shots, shots), open_source("mnist", download=False)), model


def _against(stock: StockProcess, shots: int, *, quick: bool) -> Iterator[Figure]:
    plan, model = _made(shots)
    embedded: dict[str, int] = {}
    final: dict[str, float] = {}

    def run(name: str, work: Callable[[], tuple[float, int]]) -> Callable[[], None]:
        def once() -> None:
            final[name], embedded[name] = work()

        return once

    forms = {"textbook": run("textbook", stock), "ours": run("ours", lambda: _ours(plan, model))}
    taken = turns(forms, 1 if quick else 3, warm_up=not quick)
    if max(final.values()) - min(final.values()) > _SAME:
        raise ClCnapsError(f"the ways come to different accuracies: {final}")
    images = {name: _embeddings(plan, queries_once=name != "textbook") for name in forms}
    if embedded != images:
        raise ClCnapsError(f"the ways embedded {embedded} images, and not {images}")
    value, spread = ratio(taken["textbook"], taken["ours"])
    details: dict[str, Any] = {**spread}
    details |= {f"{name}_s": [round(one, 2) for one in spent] for name, spent in taken.items()}
    details |= {f"{name}_embeddings": count for name, count in embedded.items()}
    details |= {f"{name}_accuracy": round(one, 4) for name, one in final.items()}
    yield Figure("stream", "Split-MNIST, to the textbook way", value, bar=2.5, details=details)


def _embeddings(plan: StreamPlan, *, queries_once: bool) -> int:
    """Images that are embedded: queries once, or again after every later task."""
    times = [1 if queries_once else len(plan.tasks) - number for number in range(len(plan.tasks))]
    return sum(
        one.shots + again * one.queries
        for task, again in zip(plan.tasks, times, strict=True)
        for one in task.classes
    )


def _ours(plan: StreamPlan, model: CnapsModel) -> tuple[float, int]:
    """Final single-head accuracy, and images embedded."""
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    stream = plan.stream(0, model.backbone.info.image_size)
    embedded = 0

    def counted(images: Tensor, network: FoldedNetwork) -> Tensor:
        nonlocal embedded
        embedded += len(images)
        return type(model).embed_folded(model, images, network)

    model.embed_folded = counted  # type: ignore[method-assign, assignment]
    try:
        rows = run_stream(
            CnapsLearner(stream, model, "first", covariance="task"), stream, ("single",), 0
        ).rows
    finally:
        del model.embed_folded
    last = [row["accuracy"] for row in rows if row["step"] == len(stream.tasks) - 1]
    return sum(last) / len(last), embedded


@torch.no_grad()
def _textbook(plan: StreamPlan, model: CnapsModel) -> tuple[float, int]:
    """The same by the plainest means."""
    extractor = FilmLayers(model.backbone)
    stream = plan.stream(0, NATIVE)
    film = None
    means: list[Tensor] = []
    covariances: list[Tensor] = []
    embedded = 0
    scores: list[float] = []
    for step, task in enumerate(stream.tasks):
        images = transformed(task.support_images, model.backbone.info)
        if film is None:
            film = model.adapt(_encoding(images, task.support_labels, model))
        features = torch.cat([extractor(batch, film) for batch in torch.split(images, BATCH)])
        embedded += len(features)
        _, labels = torch.unique(task.support_labels, return_inverse=True)
        mean, covariance = dense_covariances(features, labels, len(task.classes))
        means.append(mean)
        covariances.append(covariance)
        classes = torch.tensor([k for seen in stream.tasks[: step + 1] for k in seen.classes])
        scores = []
        for seen in stream.tasks[: step + 1]:
            queries = transformed(seen.query_images, model.backbone.info)
            features = torch.cat([extractor(batch, film) for batch in torch.split(queries, BATCH)])
            embedded += len(features)
            logits = dense_logits(torch.cat(means), torch.cat(covariances), features)
            scores.append(float((classes[logits.argmax(dim=1)] == seen.query_labels).double().mean()))
    return sum(scores) / len(scores), embedded


def _encoding(images: Tensor, labels: Tensor, model: CnapsModel) -> Tensor:
    encoded = model.task_encoder.set_encoder(images)
    encoding: Tensor = model.task_encoder.pool(encoded, labels, None)
    return encoding


if __name__ == "__main__":
    made = _made(int(sys.argv[1]))
    serve(lambda: _textbook(*made))
