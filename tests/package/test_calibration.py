"""The temperature and the threshold that left-out support images give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cl_cnaps import FewShotClassifier
from cl_cnaps.calibration import Calibration


def drawn(shots: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Five overlapping classes in twenty dimensions."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(5, 20))
    labels = np.repeat(np.arange(5), shots)
    return 4 * (centres[labels] + spread * generator.normal(size=(len(labels), 20))), labels


def loss(classifier: FewShotClassifier, X: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(classifier.predict_proba(X)[np.arange(len(y)), y] + 1e-12).mean())


@pytest.mark.parametrize("model", ["simple", "transductive", "protonet"])
@pytest.mark.parametrize("shots", [6, 15])
def test_it_is_near_the_best_temperature_for_new_images(model: str, shots: int) -> None:
    X, y = drawn(shots, 1.2, seed=1)
    new, truth = drawn(20, 1.2, seed=2)
    calibrated = FewShotClassifier(model, input="features").fit(X, y)
    raw = FewShotClassifier(model, input="features", temperature=1.0).fit(X, y)
    best = min(
        loss(FewShotClassifier(model, input="features", temperature=float(t)).fit(X, y), new, truth)
        for t in np.geomspace(0.1, 300, 25)
    )
    if model != "transductive":  # how refined distances grow with the queries is a rule of thumb
        assert loss(calibrated, new, truth) < best + 0.15
    assert loss(calibrated, new, truth) < loss(raw, new, truth)


def test_classes_of_one_image_have_the_usual_temperature() -> None:
    classifier = FewShotClassifier(input="features").fit(*drawn(1, 1.0, 0))
    assert classifier.calibration_.images == 0
    # A second image of each class cannot make the unit smaller.
    more = FewShotClassifier(input="features", temperature="calibrated").fit(*drawn(2, 1.0, 0))
    assert more.calibration_.images == 10
    assert classifier.temperature_for(1) > 0


def test_a_refined_temperature_grows_with_the_queries() -> None:
    classifier = FewShotClassifier("transductive", input="features").fit(*drawn(4, 1.0, 0))
    assert classifier.temperature_for(50) > classifier.temperature_for(5)


def test_two_calibrations_make_one() -> None:
    first, second = Calibration(2.0, 10, (1.0, 3.0)), Calibration(8.0, 10, (2.0,))
    merged = first.merged(second)
    assert merged.scale == pytest.approx(4.0)
    assert (merged.images, merged.nearest) == (20, (1.0, 2.0, 3.0))
    assert merged.threshold(0.5) == 2.0
    assert first.merged(Calibration(5.0, 0, ())).scale == pytest.approx(2.0)


def test_the_threshold_lets_as_many_new_images_through_as_it_promises() -> None:
    classifier = FewShotClassifier(input="features").fit(*drawn(30, 1.0, 1))
    new, _ = drawn(200, 1.0, 2)
    for part in (0.5, 0.9):
        let_through = (classifier.predict(new, unknown=part) != "unknown").mean()
        assert let_through == pytest.approx(part, abs=0.08)


def test_temperatures_are_the_same_in_every_order_of_the_images() -> None:
    X, y = drawn(4, 1.0, 1)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).numpy()
    one = FewShotClassifier(input="features").fit(X, y)
    other = FewShotClassifier(input="features").fit(X[order], y[order])
    assert one.calibration_.scale == pytest.approx(other.calibration_.scale)


@pytest.mark.parametrize("shots", [5, 15])
def test_classes_that_come_one_by_one_are_calibrated_against_those_before(shots: int) -> None:
    X, y = drawn(shots, 1.2, seed=1)
    new, truth = drawn(40, 1.2, seed=2)
    whole = FewShotClassifier(input="features").fit(X, y)
    apart = FewShotClassifier(input="features")
    paper = FewShotClassifier(input="features", covariance="task")
    for label in range(5):
        apart.partial_fit(X[y == label], y[y == label])
        paper.partial_fit(X[y == label], y[y == label])
    assert (
        loss(apart, new, truth) < loss(whole, new, truth) + 0.25
    )  # each step has the images of one class alone
    assert loss(paper, new, truth) > loss(apart, new, truth) + 0.1, (
        "the covariance of the task does not do it"
    )
    let_through = (apart.predict(new, unknown=0.9) != "unknown").mean()
    assert let_through == pytest.approx(0.9, abs=0.12)
