"""Online learning: tasks in batches, each image seen once; what that changes, and what not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from continual.small_streams import small_stream
from continual.test_evaluator import count_embeddings
from models.small import small_model
from torch import Tensor

from cl_cnaps.commands.main import main
from cl_cnaps.continual.cnaps_learner import CnapsLearner
from cl_cnaps.experiments.options import StreamOptions
from cl_cnaps.experiments.stream import StreamExperiment
from cl_cnaps.models.cnaps import MODELS, ModelName

STREAM = small_stream(((0, 1), (2, 3), (1, 4, 5)), shots=7, queries=5)
"""With a class that comes again."""


def answers(
    batch: int | None,
    name: ModelName = "simple",
    encoding: str = "first",
    adaptation: str = "film",
    **options: Any,
) -> dict[Any, Tensor]:
    """Log probabilities, by class id, of every task and head after every step."""
    # Features that are large against beta and adapted strongly, so that covariances and encodings count.
    model = small_model(name, adaptation=adaptation, beta=1e-3).double()
    if adaptation == "film":
        with torch.no_grad():
            for parameter in model.adaptation.parameters():
                parameter.mul_(6)
    learner = CnapsLearner(STREAM, model, encoding, batch=batch, seed=5, **options)
    found = {}
    for step in range(len(STREAM.tasks)):
        learner.learn(step)
        for task in range(step + 1):
            for head in ("single", "multi"):
                ids, logs = learner.log_probabilities(task, head)  # type: ignore[arg-type]
                found[step, task, head] = logs[:, torch.argsort(ids)]
    return found


def same(one: dict[Any, Tensor], other: dict[Any, Tensor], tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(one[key], other[key], rtol=tolerance, atol=tolerance) for key in other)


@pytest.mark.parametrize("batch", [1, 4, 100])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_first_encoding_with_the_covariance_of_all_classes_gives_the_same(name: Any, batch: int) -> None:
    assert same(answers(batch, name), answers(None, name))


@pytest.mark.parametrize("name", ["cnaps", "protonet"])
def test_models_of_means_alone_give_the_same_with_either_covariance(name: Any) -> None:
    assert same(answers(3, name, covariance="task"), answers(None, name, covariance="task"))


@pytest.mark.parametrize("encoding", ["moving", "averaging"])
def test_frozen_features_give_the_same_with_every_encoding(encoding: str) -> None:
    frozen = {"encoding": encoding, "adaptation": "none"}
    assert same(answers(3, **frozen), answers(None, **frozen))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"encoding": "moving"}, {"encoding": "averaging"}, {"covariance": "task"}]
)
def test_what_depends_on_the_split_into_batches(options: dict[str, Any]) -> None:
    assert not same(answers(3, **options), answers(None, **options), tolerance=1e-3)


@pytest.mark.parametrize("encoding", ["first", "averaging"])
def test_every_support_image_is_seen_once(encoding: str) -> None:
    model = small_model("simple")
    seen = count_embeddings(model)
    learner = CnapsLearner(STREAM, model, encoding, batch=3)
    for step in range(len(STREAM.tasks)):
        learner.learn(step)
    images = [image.numpy().tobytes() for task in STREAM.tasks for image in task.support_images]
    assert seen == Counter(images)


def test_the_order_of_batches_is_a_function_of_the_seed() -> None:
    first, again = (answers(3, encoding="moving") for _ in range(2))
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_the_batch_is_part_of_what_decides_a_number() -> None:
    def identity(**options: Any) -> dict[str, Any]:
        config = StreamOptions(shots=3, queries=3, runs=1, image_size=32, **options)
        (experiment,) = StreamExperiment.prepare(config, download=False)
        return experiment.identity

    assert "batch" not in identity()
    assert identity(batch=4)["batch"] == 4
    online = identity(model="naive", batch=4)["baseline"]
    assert (online["epochs"], online["batch_size"]) == (1, 4)


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        (("--batch", "2"), "split-mnist · B0-Inc2 · batches of 2 · Simple CNAPS"),
        (("--benchmark", "split-mnist:B4-Inc3"), "split-mnist:B4-Inc3 · Simple CNAPS"),
    ],
)
def test_tables_show_the_sizes_of_tasks_and_batches(
    options: tuple[str, ...], heading: str, tmp_path: Path
) -> None:
    small = ("--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "32", "--no-plots")
    counts = ("--shots", "3", "--queries", "3", "--runs", "1", "--out", str(tmp_path))
    result = CliRunner().invoke(main, ["stream", *small, *counts, *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert heading in " ".join(result.stdout.split())


def test_a_learner_of_whole_tasks_refuses_batches() -> None:
    result = CliRunner().invoke(main, ["stream", "--model", "ncm", "--batch", "2"])
    assert result.exit_code == 1
    assert "ncm learns whole tasks" in result.output
