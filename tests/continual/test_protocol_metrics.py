"""Metrics of the protocols: worked by hand, and equal to Avalanche's and scikit-learn's where they have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from avalanche.evaluation.metrics import (
    accuracy_metrics,
    bwt_metrics,
    confusion_matrix_metrics,
    forward_transfer_metrics,
    loss_metrics,
)
from avalanche.evaluation.metrics.forgetting_bwt import Forgetting, forgetting_to_bwt
from avalanche.evaluation.metrics.forward_transfer import ForwardTransfer
from avalanche.training.plugins import EvaluationPlugin
from continual.small_streams import small_stream
from hypothesis import given, settings
from hypothesis import strategies as st
from models.small import small_model
from sklearn.metrics import log_loss

from cl_cnaps.continual.baselines import make_baseline
from cl_cnaps.continual.cnaps_learner import CnapsLearner
from cl_cnaps.continual.one_pass import avalanche_benchmark
from cl_cnaps.continual.strategies import SimpleCnapsStrategy
from cl_cnaps.continual.stream import run_stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import (
    accuracy_by_step,
    accuracy_matrix,
    backward_transfer,
    base_and_novel,
    expected_calibration_error,
    forward_transfer,
    image_weighted,
    learning_accuracy,
    negative_log_likelihood,
    performance_drop,
    query_counts,
    summarise,
)

NAN = np.nan
# Task 0 goes 0.9, 0.95, 0.6; task 1 goes 0.8, 0.7; task 2 is 0.5.
ONE_RUN = np.array([[[0.9, NAN, NAN], [0.95, 0.8, NAN], [0.6, 0.7, 0.5]]])
QUERIES = np.array([60, 30, 10])


def test_hand_worked_numbers() -> None:
    assert learning_accuracy(ONE_RUN) == pytest.approx([(0.9 + 0.8 + 0.5) / 3])
    assert image_weighted(ONE_RUN, QUERIES) == pytest.approx(
        np.array([[0.9, (0.95 * 60 + 0.8 * 30) / 90, (0.6 * 60 + 0.7 * 30 + 0.5 * 10) / 100]])
    )
    assert performance_drop(ONE_RUN, QUERIES) == pytest.approx([0.9 - 0.62])
    figures = base_and_novel(ONE_RUN, QUERIES)
    assert figures is not None
    base, novel, harmonic = figures
    assert base == pytest.approx([0.6])
    assert novel == pytest.approx([(0.7 * 30 + 0.5 * 10) / 40])
    assert harmonic == pytest.approx([2 * 0.6 * 0.65 / 1.25])


def test_edges() -> None:
    one = np.array([[[0.8]]])
    assert base_and_novel(one, np.array([5])) is None
    assert performance_drop(one, np.array([5])) is None
    assert forward_transfer(np.zeros((1, 0)), np.zeros(0)) is None
    nothing = base_and_novel(np.array([[[0.5, NAN], [0.0, 0.0]]]), np.array([3, 4]))
    assert nothing is not None
    assert nothing[2] == pytest.approx([0])
    for queries in (np.array([1, 2]), np.array([1, 0, 2])):
        with pytest.raises(BadInputError, match="need a positive number of queries each"):
            image_weighted(ONE_RUN, queries)
    with pytest.raises(BadInputError, match="2 tasks have as many chances, not 3"):
        forward_transfer(np.zeros((1, 2)), np.zeros(3))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 9999), tasks=st.integers(1, 6), each=st.integers(1, 50))
def test_with_equal_tasks_images_weigh_as_tasks_do(seed: int, tasks: int, each: int) -> None:
    full = np.random.default_rng(seed).random((2, tasks, tasks))
    accuracy = np.where(np.tril(np.ones((tasks, tasks), dtype=bool)), full, NAN)
    assert image_weighted(accuracy, np.full(tasks, each)) == pytest.approx(accuracy_by_step(accuracy))


def test_transfers_are_those_of_avalanche() -> None:
    full = np.random.default_rng(3).random((4, 4))
    chance = np.array([0.5, 0.25, 0.1, 0.2])
    lost, ahead = Forgetting(), ForwardTransfer()
    for task in range(4):
        lost.update(task, float(full[task, task]), initial=True)
        ahead.update(task, chance[task], initial=True)
        if task < 3:
            lost.update(task, float(full[3, task]))
        if task > 0:
            ahead.update(task, full[task - 1, task])
    transfer = np.mean([forgetting_to_bwt(lost.result_key(task)) for task in range(3)])
    accuracy = np.where(np.tril(np.ones((4, 4), dtype=bool)), full, NAN)[None]
    assert backward_transfer(accuracy) == pytest.approx([transfer])
    before = np.diagonal(full, offset=1)[None]
    expected = np.mean([ahead.result_key(task) for task in range(1, 4)])
    assert forward_transfer(before, chance[1:]) == pytest.approx([expected])


@pytest.mark.parametrize("classes", [((0, 1), (2, 3), (4, 5)), ((0, 1, 2),) * 3], ids=["disjoint", "domains"])
def test_a_run_has_the_metrics_that_avalanche_gives_the_strategy(
    classes: tuple[tuple[int, ...], ...],
) -> None:
    """On the same images with the same model: of every experience and of the stream."""
    stream = small_stream(classes)
    model = small_model("simple", learned_temperature=False)
    run = run_stream(CnapsLearner(stream, model, "first"), stream, ["single"], run=0)
    accuracy = accuracy_matrix(run.rows, "single")
    benchmark = avalanche_benchmark(stream)
    strategy = SimpleCnapsStrategy(
        model=model,
        encoding="first",
        evaluator=EvaluationPlugin(
            accuracy_metrics(experience=True, stream=True),
            loss_metrics(stream=True),
            forward_transfer_metrics(stream=True),
            bwt_metrics(stream=True),
            confusion_matrix_metrics(num_classes=6, save_image=False, stream=True),
        ),
        eval_every=0,
    )
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[benchmark.test_stream])
        metrics = strategy.evaluator.get_last_metrics()
        for task in range(step + 1):
            name = f"Top1_Acc_Exp/eval_phase/test_stream/Task00{task}/Exp00{task}"
            assert metrics[name] == pytest.approx(accuracy[0, step, task])
    figures = summarise(accuracy, query_counts(run.rows))
    assert figures["image_accuracy"] is not None
    assert figures["backward_transfer"] is not None
    found = {
        name.partition("/")[0]: value
        for name, value in metrics.items()
        if "/test_stream" in name and "_Exp" not in name
    }
    assert figures["image_accuracy"].mean == pytest.approx(found["Top1_Acc_Stream"])
    assert figures["backward_transfer"].mean == pytest.approx(found["StreamBWT"])
    (measures,) = run.measures
    assert measures["negative_log_likelihood"] == pytest.approx(found["Loss_Stream"], rel=1e-5)
    if classes[0] == classes[1]:
        # Before training every answer is class 0, which is as often right as a guess.
        assert measures["forward_transfer"] == pytest.approx(found["StreamForwardTransfer"])
        assert measures["forward_transfer"] > 0.2
    else:
        assert measures["forward_transfer"] == 0
    matrix = torch.zeros_like(found["ConfusionMatrix_Stream"])
    for row in run.confusion:
        matrix[row["label"], row["predicted"]] = row["count"]
    assert torch.equal(matrix, found["ConfusionMatrix_Stream"])


def test_probabilities_of_learners() -> None:
    """CNAPS: softmax(logits / temperature). Networks and LDA have logits; means, cosines and ridges have none."""
    stream = small_stream()
    model = small_model("simple")
    learner = CnapsLearner(stream, model, "first")
    learner.learn(0)
    ids, found = learner.log_probabilities(0, "multi")
    assert ids.tolist() == [0, 1]
    assert found.exp().sum(dim=1).numpy() == pytest.approx(np.ones(12))
    assert torch.equal(ids[found.argmax(dim=1)], learner.predict(0, "multi"))
    with torch.no_grad():
        model.log_temperature += 1
    hotter = learner.log_probabilities(0, "multi")[1]
    assert hotter.max() < found.max()

    def features(images: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 4).flatten(1)

    for name, some in {
        "lda": True, "slda": True, "joint-probe": True, "naive": True, "vcl": True, "ncm": False,
        "simplecil": False, "ridge": False, "fecam": False,
    }.items():  # fmt: skip
        baseline = make_baseline(
            name, stream, on="features", features=features, seed=0, device=torch.device("cpu")
        )
        baseline.learn(0)
        answer = baseline.log_probabilities(0, "single")
        assert (answer is not None) == some, name
        if answer is not None:
            assert answer[1].exp().sum(dim=1).numpy() == pytest.approx(np.ones(12))
            assert torch.equal(answer[0][answer[1].argmax(dim=1)], baseline.predict(0, "single"))


def test_calibration_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
    labels = np.array([0, 1, 1, 0])
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    # Bins of 0.9 (one of two right), 0.7 (right) and 0.5 (right).
    assert expected_calibration_error(confidence, right) == pytest.approx((2 * 0.4 + 0.3 + 0.5) / 4)
    assert negative_log_likelihood(np.log(probabilities), labels) == pytest.approx(
        log_loss(labels, probabilities)
    )
    assert expected_calibration_error(np.ones(2), np.array([True, True])) == 0
    with np.errstate(divide="ignore"):
        assert negative_log_likelihood(np.log(np.eye(2)), np.array([0, 0])) == np.inf
    with pytest.raises(BadInputError, match="a confidence is a probability"):
        expected_calibration_error(np.array([1.5]), np.array([True]))
    with pytest.raises(BadInputError, match="one confidence for each image"):
        expected_calibration_error(np.array([0.5]), np.array([True, True]))
    for bad, message in ((np.log([[0.5, 0.6]]), "sum to one"), (np.zeros((2, 2)), r"not \(2, 2\) for 1")):
        with pytest.raises(BadInputError, match=message):
            negative_log_likelihood(bad, np.array([0]))
    with pytest.raises(BadInputError, match="a label lies outside of the 2 columns"):
        negative_log_likelihood(np.log(np.full((2, 2), 0.5)), np.array([0, 2]))
