"""Who knows which label: bookkeeping that loses, repeats and leaks none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.active.features import Annotator, Labelled, Scorer
from cl_cnaps.errors import BadInputError


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.data())
def test_every_image_is_labelled_once_or_not_yet(count: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 5, count)
    annotator = Annotator(classes)
    labelled = annotator.label(np.arange(data.draw(st.integers(0, count))))
    while len(labelled) < count:
        others = labelled.others(count)
        assert sorted([*labelled.numbers.tolist(), *others.tolist()]) == list(range(count))
        chosen = rng.permutation(others)[: data.draw(st.integers(1, 7))]
        before = labelled
        labelled = labelled.plus(annotator.label(chosen))
        assert labelled.numbers.tolist() == [*before.numbers.tolist(), *chosen.tolist()]
        assert np.array_equal(labelled.labels, classes[labelled.numbers])
    assert len(labelled.others(count)) == 0


def test_no_image_is_labelled_twice() -> None:
    annotator = Annotator(np.array([0, 1, 1]))
    with pytest.raises(BadInputError, match="twice"):
        annotator.label(np.array([1])).plus(annotator.label(np.array([1, 2])))
    with pytest.raises(BadInputError, match=r"0\.\.2"):
        annotator.label(np.array([-1]))
    with pytest.raises(BadInputError, match="2 images have 1 labels"):
        Labelled(np.array([0, 1]), np.array([0]))


def test_a_scorer_tells_a_share_and_nothing_else() -> None:
    scorer = Scorer(np.array([0, 1, 2, 2]))
    assert scorer.accuracy(np.array([0, 1, 1, 2])) == 0.75
    assert [name for name in dir(scorer) if not name.startswith("_")] == ["accuracy"]
    with pytest.raises(BadInputError, match="4 test images got 1"):
        scorer.accuracy(np.array([0]))
