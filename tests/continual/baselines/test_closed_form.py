"""Methods in closed form against float64 twins; streamed, in one piece and in any order they are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import closed_form as reference
from sklearn.covariance import oas
from sklearn.kernel_approximation import RBFSampler

from cl_cnaps.continual.baselines import BASELINES, closed_form
from cl_cnaps.continual.baselines.closed_form import GAMMAS, ClosedFormClassifier, ProbeClassifier
from cl_cnaps.continual.baselines.feature_maps import draw_map, scale_gamma
from cl_cnaps.continual.baselines.heads import (
    Moments,
    best_shrinkage,
    best_strength,
    oas_shrinkage,
)
from cl_cnaps.continual.baselines.settings import (
    ClosedFormSettings,
    CosineHead,
    DiscriminantHead,
    FourierMap,
    IdentityMap,
    ReluMap,
    RidgeHead,
)
from cl_cnaps.errors import BadInputError

CPU = torch.device("cpu")
WIDTH = 12


def batches(n: int, classes: int = 4, seed: int = 0, parts: int = 3):
    """Vectors of classes with different means, in batches; every class is in the first."""
    rng = np.random.default_rng(seed)
    columns = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    vectors = (
        rng.normal(size=(n, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH))
        + 2 * rng.normal(size=(classes, WIDTH))[columns]
    )
    vectors = vectors.astype(np.float32).astype(np.float64)
    cuts = np.linspace(classes, n, parts + 1).astype(int)[1:-1]
    return list(zip(np.split(vectors, cuts), np.split(columns, cuts), strict=True))


def together(given_batches):
    return tuple(np.concatenate(part) for part in zip(*given_batches, strict=True))


def learned(given_batches, head, map_=None, seed=0):
    classifier = ClosedFormClassifier(ClosedFormSettings(map=map_ or IdentityMap(), head=head), seed, CPU)
    for vectors, columns in given_batches:
        classifier.learn(torch.as_tensor(vectors).float(), torch.as_tensor(columns))
    return classifier


def queries(seed: int = 1):
    return np.random.default_rng(seed).normal(size=(9, WIDTH)).astype(np.float32).astype(np.float64)


# Ten vectors are kept as rows (the dual form), ninety as a Gram matrix.
@pytest.mark.parametrize("n", [10, 90])
@pytest.mark.parametrize("strength", [0.1, 10.0, 1e3])
def test_ridge_is_its_formula_and_acils_recursion(n, strength):
    given_batches = batches(n)
    found = learned(given_batches, RidgeHead(strength=strength)).scores(torch.as_tensor(queries()).float())
    whole = reference.ridge(*together(given_batches), 4, strength)
    recursive = reference.recursive_ridge(given_batches, 4, strength)
    np.testing.assert_allclose(recursive, whole, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found, queries() @ whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("n", [6, 10, 90])
@pytest.mark.parametrize("shrinkage", ["oas", "identity", 0.3, 1])
def test_discriminant_is_lda_updated_image_by_image(n, shrinkage):
    given_batches = batches(n)
    found = learned(given_batches, DiscriminantHead(shrinkage=shrinkage))
    expected = reference.discriminant_scores(given_batches, 4, shrinkage, queries())
    np.testing.assert_allclose(
        found.scores(torch.as_tensor(queries()).float()), expected, rtol=1e-5, atol=1e-6
    )


def test_one_image_a_class_is_the_nearest_mean():
    vectors, columns = batches(4, parts=1)[0]
    scores = learned([(vectors, columns)], DiscriminantHead()).scores(torch.as_tensor(queries()).float())
    distances = ((queries()[:, None] - vectors[None]) ** 2).sum(axis=2)
    assert (scores.argmax(dim=1).numpy() == columns[distances.argmin(axis=1)]).all()


def test_cosine_is_simplecil():
    given_batches = batches(40)
    found = learned(given_batches, CosineHead()).scores(torch.as_tensor(queries()).float())
    expected = reference.cosine_scores(*together(given_batches), 4, queries())
    np.testing.assert_allclose(found, expected, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 40), width=st.integers(2, 30), seed=st.integers(0, 9999))
def test_oas_is_scikit_learns(n, width, seed):
    rows = np.random.default_rng(seed).normal(size=(n, width)) * np.linspace(0.1, 3, width)
    covariance = rows.T @ rows / n
    found = oas_shrinkage(np.trace(covariance), (covariance**2).sum(), n, width)
    assert found == pytest.approx(oas(rows, assume_centered=True)[1], rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(8, 40), seed=st.integers(0, 9999), order=st.randoms(use_true_random=False))
@pytest.mark.parametrize(
    ("head", "map_"),
    [
        (CosineHead(), None),
        (DiscriminantHead(), None),
        (RidgeHead(strength=0.1), ReluMap(width=24)),
        (DiscriminantHead(), FourierMap(width=24, gamma=0.02)),
    ],
)
def test_neither_batches_nor_the_order_of_classes_change_an_order_free_method(head, map_, n, seed, order):
    vectors, columns = together(batches(n, seed=seed))
    by_class = [(vectors[columns == column], columns[columns == column]) for column in range(4)]
    order.shuffle(by_class)
    one = learned([(vectors, columns)], head, map_).scores(torch.as_tensor(queries()).float())
    other = learned(by_class, head, map_).scores(torch.as_tensor(queries()).float())
    # Float32 projections of another batch differ in their last digit, which a weak ridge enlarges.
    torch.testing.assert_close(one, other, rtol=0, atol=1e-3 * float(one.abs().max()))


def rows(vectors, columns):
    return torch.as_tensor(vectors).float(), torch.as_tensor(columns)


def test_the_shrinkage_is_that_of_the_largest_held_out_likelihood_over_known_classes():
    train, held_out = batches(60, seed=1, parts=1)[0], batches(30, seed=1, parts=1)[0]
    seen = train[1] < 3
    moments = Moments(WIDTH)
    moments.add(*rows(train[0][seen], train[1][seen]))
    shrinkages = (0.01, 0.2, 0.9)
    kept = held_out[1] < 3
    errors = []
    for shrinkage in shrinkages:
        batch = [(train[0][seen], train[1][seen])]
        scores = reference.discriminant_scores(batch, 3, shrinkage, held_out[0][kept])
        likelihoods = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        errors.append(-likelihoods[np.arange(kept.sum()), held_out[1][kept]].sum())
    best, error = best_shrinkage(moments, *rows(*held_out), shrinkages)
    assert best == shrinkages[int(np.argmin(errors))]
    assert error == pytest.approx(min(errors), rel=1e-5)
    assert (
        learned([(np.ones((1, WIDTH)), np.array([0]))], DiscriminantHead(shrinkage="held-out")).shrinkage == 1
    )


def test_few_images_of_round_classes_are_shrunk_more_than_many_of_long_ones():
    chosen = []
    for n, scales in ((24, np.ones(WIDTH)), (600, np.logspace(-2, 2, WIDTH))):
        rng = np.random.default_rng(n)
        columns = np.arange(n) % 4
        vectors = (rng.normal(size=(n, WIDTH)) + rng.normal(size=(4, WIDTH))[columns]) * scales
        given = [(vectors[: n // 2], columns[: n // 2]), (vectors[n // 2 :], columns[n // 2 :])]
        chosen.append(learned(given, DiscriminantHead(shrinkage="held-out")).shrinkage)
    assert chosen[0] >= 0.3
    assert chosen[1] <= 0.01


@pytest.mark.parametrize("n", [10, WIDTH, 60])
def test_the_strength_is_that_of_the_least_error_on_held_out_images_and_needs_two(n):
    train, held_out = batches(n, seed=1, parts=1)[0], batches(30, seed=1, parts=1)[0]
    moments = Moments(WIDTH)
    moments.add(*rows(*train))
    assert (moments.gram_MM is None) == (n <= WIDTH)
    strengths = (1e-4, 1.0, 1e4)
    errors = [
        ((held_out[0] @ reference.ridge(*train, 4, strength) - reference.one_hot(held_out[1], 4)) ** 2).sum()
        for strength in strengths
    ]
    best, error = best_strength(moments, *rows(*held_out), strengths)
    assert best == strengths[int(np.argmin(errors))]
    assert error == pytest.approx(min(errors), rel=1e-6)
    assert learned([(np.ones((1, WIDTH)), np.array([0]))], RidgeHead()).strength == 1.0


@pytest.mark.parametrize(("map_", "tried"), [(None, 60), (ReluMap(width=20), 16)])
def test_a_strength_is_chosen_on_all_images_unless_vectors_are_wide(map_, tried, monkeypatch):
    monkeypatch.setattr(closed_form, "MOST_TRIED", 16)
    split = learned(batches(60), RidgeHead(), map_)._split
    assert split.train.n + len(split.labels_H) == tried
    assert len(split.labels_H) == pytest.approx(tried / 5, abs=1)


def test_the_authors_rule_looks_at_the_last_task_alone():
    clean, last = batches(300, parts=1)[0], batches(40, seed=2, parts=1)[0]
    noise = (clean[0], np.random.default_rng(5).permutation(clean[1]))
    found = {
        rule: [learned([before, last], RidgeHead(strength=rule)).strength for before in (clean, noise)]
        for rule in ("held-out", "held-out-last")
    }
    assert found["held-out-last"][0] == found["held-out-last"][1]
    assert found["held-out"][0] < found["held-out"][1]


def test_maps_are_their_formulas():
    features = torch.as_tensor(queries()).float()
    normal = draw_map(ReluMap(width=4000), features, seed=3)
    assert float(normal.weights_DM.std()) == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(normal(features), (features @ normal.weights_DM).relu())
    uniform = draw_map(ReluMap(width=4000, draw="uniform"), features, seed=3).weights_DM
    torch.manual_seed(3)
    layer = torch.nn.Linear(WIDTH, 4000, bias=False)
    assert float(uniform.std()) == pytest.approx(float(layer.weight.detach().std()), rel=0.02)
    assert float(uniform.abs().max()) <= WIDTH**-0.5
    fourier = draw_map(FourierMap(width=50), features, seed=3)
    sampler = RBFSampler(gamma="scale", n_components=50, random_state=3)
    np.testing.assert_allclose(fourier(features), sampler.fit_transform(queries()), atol=1e-5)
    assert scale_gamma(features) == pytest.approx(1 / (WIDTH * queries().var()))


def test_gamma_is_one_of_the_candidates_and_a_single_image_leaves_the_scale():
    vectors, columns = batches(60, parts=1)[0]
    found = learned([(vectors, columns)], DiscriminantHead(), FourierMap(width=40, gamma="held-out"))
    scale = scale_gamma(torch.as_tensor(vectors).float())
    assert found.gamma / scale in [pytest.approx(factor) for factor in GAMMAS]
    alone = learned([(vectors[:1], columns[:1])], DiscriminantHead(), FourierMap(width=40, gamma="held-out"))
    assert alone.gamma == pytest.approx(scale_gamma(torch.as_tensor(vectors[:1]).float()))


def test_published_defaults():
    ranpac, acil = BASELINES["ranpac"].defaults, BASELINES["acil"].defaults
    assert (ranpac.map, ranpac.head) == (ReluMap(width=10_000, draw="normal"), RidgeHead(strength="held-out"))
    assert (acil.map.width, acil.map.draw, acil.head.strength) == (8192, "uniform", 0.1)
    assert (BASELINES["klda"].defaults.map.width, BASELINES["randumb"].defaults.map.gamma) == (5000, "scale")
    assert BASELINES["fsa-film"].defaults.head.shrinkage == "identity"


def test_the_probe_separates_classes_and_scores_only_those_seen():
    probe = ProbeClassifier(BASELINES["joint-probe"].defaults, seed=0)
    vectors, columns = together(batches(80))
    probe.learn(torch.as_tensor(vectors[columns == 3]).float(), torch.full(((columns == 3).sum(),), 3))
    assert probe.scores(torch.as_tensor(queries()).float()).shape == (9, 4)
    for column in (1, 0):
        probe.learn(
            torch.as_tensor(vectors[columns == column]).float(),
            torch.full(((columns == column).sum(),), column),
        )
    scores = probe.scores(torch.as_tensor(vectors).float())
    np.testing.assert_allclose(scores[:, [0, 1, 3]].exp().sum(dim=1), 1, atol=1e-6)
    seen = columns != 2
    assert (scores.argmax(dim=1).numpy()[seen] == columns[seen]).mean() > 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RidgeHead(strength=0), "strength must be above 0"),
        (
            lambda: RidgeHead(strength="best"),
            "strength must be above 0, held-out or held-out-last, not 'best'",
        ),
        (lambda: ReluMap(width=0), "width must be at least 1"),
        (lambda: FourierMap(gamma=-1.0), "gamma must be above 0"),
        (lambda: DiscriminantHead(shrinkage="none"), "shrinkage must be above 0"),
        (lambda: ClosedFormSettings(map="relu"), "map must be IdentityMap"),
        (lambda: Moments(3).add(torch.zeros(2, 4), torch.zeros(2)), r"need vectors 2 x 3, got \(2, 4\)"),
    ],
)
def test_bad_settings_say_what_is_wrong(make, message):
    with pytest.raises(BadInputError, match=message):
        make()
