"""The baselines without gradients against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from torch.nn import functional as F

from cl_cnaps.continual.baselines import make_baseline
from cl_cnaps.errors import BadInputError

CPU = torch.device("cpu")


def learned(name, stream, features, **settings):
    on = "network" if name == "pixel-ncm" else "features"
    learner = make_baseline(name, stream, on=on, features=features, seed=0, device=CPU, **settings)
    for step in range(len(stream.tasks)):
        learner.learn(step)
    return learner


def test_ncm_weighs_a_class_seen_again_by_its_counts(make_stream, features):
    stream = make_stream(((0, 1), (1, 2)))
    # Five of task 1's images of class 1 in task 0, all of them in task 1.
    first = stream.tasks[0]
    keep = torch.cat([torch.arange(12), torch.arange(12, 17)])
    smaller = type(first)(
        first.name,
        first.classes,
        first.support_images[keep],
        first.support_labels[keep],
        first.query_images,
        first.query_labels,
    )
    stream = type(stream)(stream.name, (smaller, stream.tasks[1]))
    learner = learned("ncm", stream, features, normalise=False)
    both = torch.cat([task.support_images[task.support_labels == 1] for task in stream.tasks])
    assert len(both) == 17
    assert torch.allclose(learner.classifier.class_means[1], features(both).mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("name", ["fecam", "ncm", "slda", "lda", "ridge"])
def test_scores_are_kept_only_while_they_hold(name, make_stream, features):
    stream = make_stream(((0, 1), (1, 2), (3, 0)))
    asked = make_baseline(name, stream, on="features", features=features, seed=0, device=CPU)
    for step in range(3):
        asked.learn(step)
        for head in ("multi", "single"):
            for task in range(step + 1):
                asked.predict(task, head)
    fresh = learned(name, stream, features)
    for head in ("single", "multi"):
        for task in range(3):
            for one, other in zip(asked._answer(task, head), fresh._answer(task, head), strict=True):
                assert torch.equal(one, other)


def test_pixel_ncm_is_nearest_mean_of_pixels(make_stream):
    stream = make_stream()
    learner = learned("pixel-ncm", stream, None)
    support = torch.cat([task.support_images[:, 0].flatten(1).float() for task in stream.tasks])
    labels = torch.cat([task.support_labels for task in stream.tasks])
    means = torch.stack([support[labels == label].mean(dim=0) for label in range(6)])
    queries = stream.tasks[0].query_images[:, 0].flatten(1).float()
    assert torch.equal(learner.predict(0, "single"), torch.cdist(queries, means).argmin(dim=1))


def test_slda_is_lda_with_its_streaming_covariance(make_stream, features):
    stream = make_stream()
    learner = learned("slda", stream, features)
    covariance, means = torch.zeros(24, 24, dtype=torch.float64), torch.zeros(6, 24, dtype=torch.float64)
    counts, updates = [0] * 6, 0
    for task in stream.tasks:
        # Avalanche's loader shuffles, and the order enters through the running means: take it in stream order
        # here and allow the difference below.
        for vector, label in zip(
            features(task.support_images).double(), task.support_labels.tolist(), strict=True
        ):
            away = vector - means[label]
            covariance = (updates * covariance + torch.outer(away, away) * updates / (updates + 1)) / (
                updates + 1
            )
            means[label] += away / (counts[label] + 1)
            counts[label] += 1
            updates += 1
    assert torch.allclose(learner.strategy.muK.double(), means, atol=1e-4)
    found = learner.strategy.Sigma.double()
    # Of vectors with this covariance and no others: scikit-learn's shrinkage is a function of S and n alone.
    root = torch.linalg.cholesky(found + 1e-12 * torch.eye(24))
    rows = np.tile(root.numpy().T * np.sqrt(24), (updates // 24, 1))
    assert len(rows) == updates == 72
    shrunk, _ = oas(rows, assume_centered=True)
    precision = torch.linalg.inv(torch.as_tensor(shrunk))
    queries = features(stream.tasks[1].query_images).double()
    scores = queries @ precision @ means.T - ((means @ precision) * means).sum(dim=1) / 2
    assert torch.equal(learner.predict(1, "single"), scores.argmax(dim=1))
    assert torch.allclose(learner.strategy.Sigma.double().diag().sum(), covariance.diag().sum(), rtol=0.2)


def test_fecam_distances_are_those_of_avalanche(make_stream, features):
    stream = make_stream(((0, 1), (2, 1)))

    def varied(images):
        # No feature is constant, where the two shrink the covariance alike.
        return features(images) + 0.1 + images.float().flatten(1)[:, :24] / 255

    learner = learned("fecam", stream, varied)
    from avalanche.models import FeCAMClassifier
    from avalanche.models.fecam import compute_covariance, compute_means

    stock = FeCAMClassifier()
    for task in stream.tasks:
        transformed = varied(task.support_images).sqrt()
        stock.update_class_means_dict(compute_means(transformed, task.support_labels))
        covariances = compute_covariance(transformed, task.support_labels)
        stock.update_class_cov_dict(stock.apply_cov_transforms(covariances))
    queries = varied(stream.tasks[0].query_images)
    with pytest.warns(UserWarning, match="copy construct"):
        expected = -stock(queries)
        found = learner.classifier.distances(queries, torch.tensor([0, 1, 2]))
    assert torch.allclose(found, expected, rtol=1e-3)


def test_fecam_takes_no_roots_where_the_first_task_has_negative_features(make_stream, features, caplog):
    stream = make_stream()

    def centred(images):
        return F.layer_norm(features(images), (24,))

    found = learned("fecam", stream, centred).predict(0, "single")
    assert "features below zero have no square root" in caplog.text
    assert torch.equal(found, learned("fecam", stream, centred, tukey=False).predict(0, "single"))


def test_fecam_refuses_features_that_become_negative(make_stream, features):
    stream = make_stream()
    last = stream.tasks[-1].support_images

    def turned(images):
        found = features(images)
        return -found if len(images) == len(last) and torch.equal(images, last) else found

    with pytest.raises(BadInputError, match=r"not negative in the first task, and found -.*; tukey=False"):
        learned("fecam", stream, turned)


def test_fecam_averages_a_class_seen_again_by_counts():
    from cl_cnaps.continual.baselines.settings import FecamSettings
    from cl_cnaps.continual.baselines.statistics import FactoredFecam

    classifier = FactoredFecam(FecamSettings())
    for number, value in ((1, 0.0), (3, 4.0)):
        classifier.expect(torch.zeros(number, dtype=torch.int64))
        classifier.update_class_means_dict({0: torch.full((2,), 1 + value)})
        classifier.update_class_cov_dict({0: torch.eye(2) * (1 + value)})
    assert torch.allclose(classifier.class_means_dict[0], torch.full((2,), 4.0))
    factor = classifier.factors[0]
    assert torch.allclose(factor @ factor.T, 4 * torch.eye(2), atol=1e-4)


def test_fecam_says_which_class_has_too_few_images(make_stream, features):
    with pytest.raises(
        BadInputError, match=r"covariance of class 0 in task 'task \(0, 1\)' and found 1 support"
    ):
        learned("fecam", make_stream(shots=1), features)
