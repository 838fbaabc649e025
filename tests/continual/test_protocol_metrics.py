"""Metrics of the protocols: worked by hand, and equal to Avalanche's and scikit-learn's where they have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from avalanche.evaluation.metrics import ConfusionMatrix
from avalanche.evaluation.metrics.forgetting_bwt import Forgetting, forgetting_to_bwt
from avalanche.evaluation.metrics.forward_transfer import ForwardTransfer
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import (
    accuracy_by_step,
    backward_transfer,
    forward_transfer,
    fscil_figures,
    image_weighted,
    learning_accuracy,
)
from cl_cnaps.metrics.probabilities import (
    confusion_matrix,
    expected_calibration_error,
    negative_log_likelihood,
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
    figures = fscil_figures(ONE_RUN, QUERIES)
    assert figures is not None
    assert figures.drop == pytest.approx([0.9 - 0.62])
    assert figures.base == pytest.approx([0.6])
    assert figures.novel == pytest.approx([(0.7 * 30 + 0.5 * 10) / 40])
    assert figures.harmonic == pytest.approx([2 * 0.6 * 0.65 / 1.25])


def test_edges() -> None:
    one = np.array([[[0.8]]])
    assert fscil_figures(one, np.array([5])) is None
    assert forward_transfer(np.zeros((1, 0)), np.zeros(0)) is None
    nothing = fscil_figures(np.array([[[0.5, NAN], [0.0, 0.0]]]), np.array([3, 4]))
    assert nothing is not None
    assert nothing.harmonic == pytest.approx([0])
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


def test_the_confusion_matrix_is_avalanches() -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 5, 80), rng.integers(0, 4, 80)
    stock = ConfusionMatrix(num_classes=5)
    stock.update(torch.as_tensor(labels), torch.as_tensor(predicted))
    assert (confusion_matrix(predicted, labels, 5) == stock.result().numpy()).all()
    with pytest.raises(BadInputError, match="a prediction lies outside of 3 classes"):
        confusion_matrix(predicted, labels, 3)


def test_calibration_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
    labels = np.array([0, 1, 1, 0])
    # Bins of 0.9 (one of two right), 0.7 (right) and 0.5 (right).
    assert expected_calibration_error(probabilities, labels) == pytest.approx((2 * 0.4 + 0.3 + 0.5) / 4)
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(log_loss(labels, probabilities))
    assert expected_calibration_error(np.eye(2), np.array([0, 1])) == 0
    assert negative_log_likelihood(np.eye(2), np.array([0, 0])) == np.inf
    for bad, message in (
        (np.array([[0.5, 0.6]]), "sum to one"),
        (np.array([[1.5, -0.5]]), "must not be negative"),
        (np.zeros((2, 2)), r"N x K for N labels, not \(2, 2\) for 1"),
    ):
        with pytest.raises(BadInputError, match=message):
            expected_calibration_error(bad, np.array([0]))
    with pytest.raises(BadInputError, match="a label lies outside of the 2 columns"):
        negative_log_likelihood(np.eye(2), np.array([0, 2]))
