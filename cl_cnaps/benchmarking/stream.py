"""A whole Split-MNIST stream against the textbook way, loading and transforming included.

Five tasks, First encoding, ResNet-18 at 84 pixels with random weights. The textbook way embeds every old query again
after every task, eagerly, in PyTorch's default memory format, in batches of 256 as the authors do, with FiLM as extra
layers and a dense covariance for each class, in a process with PyTorch as it comes. Both must reach the same accuracy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from cl_cnaps.benchmarking.figures import Figure
from cl_cnaps.benchmarking.modulated import FilmLayers
from cl_cnaps.benchmarking.stock_process import StockProcess, serve
from cl_cnaps.benchmarking.textbook import dense_covariances, dense_logits
from cl_cnaps.benchmarking.timing import interleaved
from cl_cnaps.benchmarking.transforms import transformed
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, plan_stream
from cl_cnaps.continual.protocol import run_stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import load_model

BATCH = 256
NATIVE = 28
"""Side of a digit as it lies on disk."""
_SAME = 0.02
"""Largest difference of the final accuracy: features of random weights are close calls."""


def measure(quick: bool) -> Iterator[Figure]:
    """The plain learner, then the compiled one, each against the textbook way in the same run."""
    shots = 10 if quick else 100
    with StockProcess("cl_cnaps.benchmarking.stream", str(shots)) as stock:
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

    def textbook() -> None:
        final["textbook"], embedded["textbook"] = stock()

    def ours() -> None:
        final["ours"], embedded["ours"] = _ours(plan, model)

    times = interleaved({"textbook": textbook, "ours": ours}, 1 if quick else 2, warm_up=not quick)
    if abs(final["textbook"] - final["ours"]) > _SAME:
        raise ClCnapsError(f"the two ways come to different accuracies: {final}")
    details = {f"{name}_s": round(value, 2) for name, value in times.items()}
    details |= {f"{name}_embeddings": value for name, value in embedded.items()}
    details |= {f"{name}_accuracy": round(value, 4) for name, value in final.items()}
    yield Figure(
        "stream",
        "Split-MNIST, to the textbook way",
        round(times["textbook"] / times["ours"], 2),
        bar=2.5,
        details=details,
    )
    if quick:
        return
    says = model.compile_embedding()
    if not model.compiled:
        raise ClCnapsError(says)
    compiled = interleaved({"textbook": textbook, "compiled": ours}, 2, warm_up=False)
    yield Figure(
        "stream",
        "Split-MNIST, compiled, to the textbook way",
        round(compiled["textbook"] / compiled["compiled"], 2),
        bar=4.0,
        details={f"{name}_s": round(value, 2) for name, value in compiled.items()} | {"compiling": says},
    )


def _ours(plan: StreamPlan, model: CnapsModel) -> tuple[float, int]:
    """Final single-head accuracy, and images embedded."""
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    stream = plan.stream(0, model.backbone.info.image_size)
    learner = CnapsLearner(stream, model, "first")
    rows = run_stream(learner, stream, ("single",), 0).rows
    last = [row["accuracy"] for row in rows if row["step"] == len(stream.tasks) - 1]
    supports = sum(len(task.support_labels) for task in stream.tasks)
    return sum(last) / len(last), learner.embedded + supports


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
