"""The classifier as a scikit-learn estimator, on features."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cl_cnaps import FewShotClassifier
from cl_cnaps.errors import BadInputError

BY_DESIGN = {
    "check_methods_subset_invariance": "the transductive model refines its classes on all queries together",
}


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    return BY_DESIGN if estimator.model == "transductive" else {}


@parametrize_with_checks(
    [
        FewShotClassifier(input="features"),
        FewShotClassifier(input="features", covariance="task"),
        FewShotClassifier("protonet", input="features"),
        FewShotClassifier("transductive", input="features"),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["setosa", "versicolor", "virginica"])[y[order]]


def test_it_works_in_scikit_learns_tools(iris: tuple[np.ndarray, np.ndarray]) -> None:
    classifier = FewShotClassifier(input="features", beta=0.1)
    assert clone(classifier).get_params() == classifier.get_params()
    assert cross_val_score(make_pipeline(StandardScaler(), classifier), *iris, cv=3).mean() > 0.9
    search = GridSearchCV(classifier, {"beta": [0.01, 1.0], "model": ["simple", "protonet"]}, cv=2).fit(*iris)
    assert search.best_score_ > 0.9


def test_classes_that_come_later_are_learned_without_the_old_images(
    iris: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = iris
    classifier = FewShotClassifier(input="features", beta=0.1)
    early = y != "virginica"
    classifier.partial_fit(X[early][:40], y[early][:40])
    assert classifier.classes_.tolist() == ["setosa", "versicolor"]
    before = classifier.predict_proba(X)
    late = ~early
    classifier.partial_fit(X[late][:20], y[late][:20])
    assert classifier.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert classifier.score(X, y) > 0.9
    assert classifier.counts_["virginica"] == 20
    classifier.partial_fit(X[late][20:25], y[late][20:25])
    assert classifier.counts_["virginica"] == 25
    classifier.forget("virginica")
    assert np.array_equal(classifier.predict(X), np.array(["setosa", "versicolor"])[before.argmax(axis=1)])
    with pytest.raises(BadInputError, match="no class 'virginica' to forget; there are setosa, versicolor"):
        classifier.forget("virginica")
    with pytest.raises(BadInputError, match="'versicolor' is the only class"):
        classifier.forget("setosa").forget("versicolor")


class TestCovarianceOfAllClasses:
    """With covariance="seen", the default, neither order nor splits matter; with "task", they do."""

    @pytest.mark.parametrize("model", ["simple", "transductive"])
    def test_any_order_gives_the_same(self, model: str, iris: tuple[np.ndarray, np.ndarray]) -> None:
        X, y = iris
        whole = FewShotClassifier(model, input="features", temperature=5.0).fit(X, y)
        apart = FewShotClassifier(model, input="features", temperature=5.0)
        paper = FewShotClassifier(model, input="features", temperature=5.0, covariance="task")
        for label in ("virginica", "setosa", "versicolor"):
            for part in (slice(0, 20), slice(20, None)):  # classes come again
                apart.partial_fit(X[y == label][part], y[y == label][part])
                paper.partial_fit(X[y == label][part], y[y == label][part])
        np.testing.assert_allclose(apart.predict_proba(X), whole.predict_proba(X), atol=1e-6)
        if model == "simple":  # the refinement ends up in the same classes
            assert np.abs(paper.predict_proba(X) - whole.predict_proba(X)).max() > 1e-3

    def test_a_forgotten_class_was_never_there(self, iris: tuple[np.ndarray, np.ndarray]) -> None:
        X, y = iris
        kept = y != "setosa"
        never = FewShotClassifier(input="features", temperature=5.0).fit(X[kept], y[kept])
        forgotten = FewShotClassifier(input="features", temperature=5.0).fit(X, y).forget("setosa")
        np.testing.assert_allclose(forgotten.predict_proba(X), never.predict_proba(X), atol=1e-6)
        again = forgotten.partial_fit(X[~kept], y[~kept])
        whole = FewShotClassifier(input="features", temperature=5.0).fit(X, y)
        np.testing.assert_allclose(again.predict_proba(X), whole.predict_proba(X), atol=1e-6)

    def test_what_is_no_covariance(self, iris: tuple[np.ndarray, np.ndarray]) -> None:
        with pytest.raises(BadInputError, match="covariance is of task or seen, not 'none'"):
            FewShotClassifier(input="features", covariance="none").fit(*iris)  # type: ignore[arg-type]


def test_classes_may_be_declared_before_they_come(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    early = y != "virginica"
    classifier = FewShotClassifier(input="features").partial_fit(X[early], y[early], classes=np.unique(y))
    assert classifier.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert not classifier.predict_proba(X)[:, 2].any()
    with pytest.raises(BadInputError, match="not in classes: 'versicolor'"):
        classifier.partial_fit(X[early], y[early], classes=["setosa"])
    with pytest.raises(BadInputError, match="labels of several kinds"):
        classifier.partial_fit(X, np.arange(len(X)) % 2)


def test_fitting_anew_forgets_and_the_same_data_give_the_same(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    once = FewShotClassifier(input="features").fit(X, y)
    again = FewShotClassifier(input="features").fit(X[:50], y[:50]).fit(X, y)
    assert np.array_equal(once.predict_proba(X), again.predict_proba(X))
    for other in (pickle.loads(pickle.dumps(once)), copy.deepcopy(once)):
        assert np.array_equal(other.predict_proba(X), once.predict_proba(X))


def test_an_image_unlike_every_class_is_unknown(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    classifier = FewShotClassifier(input="features", beta=0.01).fit(X, y)
    found = classifier.predict(np.concatenate([X, X[:5] + 50]), unknown=0.95)
    assert found[-5:].tolist() == ["unknown"] * 5
    assert 0.01 < (found[:-5] == "unknown").mean() < 0.08
    assert classifier.predictions(X[:1] + 50, unknown=0.95)[0].label == "unknown"
    numbers = FewShotClassifier(input="features").fit(X, np.arange(len(X)) % 3)
    assert set(numbers.predict(np.concatenate([X, X + 90]), unknown=0.9).tolist()) <= {0, 1, 2, "unknown"}
    with pytest.raises(BadInputError, match="between 0 and 1, not 95"):
        classifier.predict(X, unknown=95)
    with pytest.raises(BadInputError, match="two or more images"):
        FewShotClassifier(input="features").fit(X[:2], ["a", "b"]).predict(X, unknown=0.5)


def test_what_it_prints(iris: tuple[np.ndarray, np.ndarray]) -> None:
    classifier = FewShotClassifier(input="features")
    assert repr(classifier) == "FewShotClassifier(model='simple', input='features'): nothing learned yet"
    assert repr(classifier.fit(*iris)) == (
        "FewShotClassifier(model='simple', input='features'): 3 classes (setosa, versicolor, virginica) of 150 features"
    )


def test_it_asks_for_what_is_missing(iris: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(NotFittedError):
        FewShotClassifier(input="features").predict(iris[0])
    with pytest.raises(BadInputError, match="trained for its own features"):
        FewShotClassifier(model="cnaps", input="features").fit(*iris)
    with pytest.raises(BadInputError, match="unknown model 'complicated'"):
        FewShotClassifier(model="complicated", input="features").fit(*iris)
