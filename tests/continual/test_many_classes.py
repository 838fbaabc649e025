"""Memory of few directions per class, and shortlists of candidates, in streams and in the classifier."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cl_cnaps import FewShotClassifier
from cl_cnaps.continual import memory as memory_module
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig, Covariance
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.loading import features_model

WIDTH, TASKS, CLASSES, SHOTS = 32, 6, 5, 12


def images(task: int, shots: int = SHOTS, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * seed + task)
    centres = 2 * torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(100 + task))
    labels = torch.arange(CLASSES).repeat_interleave(shots)
    mixing = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(5)) / 5
    return centres[labels] + torch.randn(
        len(labels), WIDTH, generator=generator
    ) @ mixing, labels + CLASSES * task


def learned(
    covariance: Covariance = "seen",
    rank: int | None = None,
    shortlist: int | None = None,
    name: str = "simple",
) -> ContinualCnaps:
    config = ContinualConfig(covariance=covariance, memory_rank=rank, shortlist=shortlist)
    continual = ContinualCnaps(features_model(name, WIDTH), config)
    for task in (*range(TASKS), 1):  # the second one comes again
        continual.learn(*images(task, seed=int(task == 1)), task)
    return continual


def queries() -> tuple[Tensor, Tensor]:
    parts = [images(task, shots=4, seed=9) for task in range(TASKS)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def answers(continual: ContinualCnaps) -> Tensor:
    keys = continual.memory.keys
    logits = continual.logits(continual.embed(queries()[0]), keys, covered=False)
    return torch.tensor([key.label for key in keys])[logits.argmax(dim=1)]


@pytest.mark.parametrize("covariance", ["seen", "task"])
@pytest.mark.parametrize("name", ["simple", "transductive"])
def test_few_directions_take_less_memory_and_answer_nearly_the_same(
    covariance: Covariance, name: str
) -> None:
    whole, small = learned(covariance, name=name), learned(covariance, rank=3, name=name)
    assert small.memory_bytes() < 0.6 * whole.memory_bytes()
    assert (answers(whole) == answers(small)).float().mean() > 0.9
    assert (answers(small) == queries()[1]).float().mean() > 0.9
    for group in small.memory.groups:
        if group.statistics is not None:
            assert int(torch.bincount(group.statistics.row_class_R).max()) <= 3


def test_the_covariance_of_all_classes_stays_exact() -> None:
    whole, small = (part.memory.scatter.matrix(torch.float64) for part in (learned(), learned(rank=3)))
    torch.testing.assert_close(small, whole)


def test_small_groups_are_joined_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(learned(rank=3).memory.groups) < len(learned().memory.groups)
    before = answers(learned(rank=3))
    monkeypatch.setattr(memory_module, "_JOINED", 10)
    limited = learned(rank=3)
    assert max(len(group.keys) for group in limited.memory.groups) <= 10
    assert torch.equal(answers(limited), before)


def test_a_shortlist_answers_as_all_classes_do() -> None:
    exact, few = learned(rank=3), learned(rank=3, shortlist=6)
    assert torch.equal(answers(few), answers(exact))
    few.learn(*images(TASKS), TASKS)  # it is made again for new classes
    assert few.memory.keys[-1].label == CLASSES * TASKS + CLASSES - 1
    assert len(answers(few).unique()) > 20
    own = few.classes_of_task[0]
    features = few.embed(queries()[0])
    torch.testing.assert_close(
        few.stored_logits(features, own), few.stored_logits(features, few.memory.keys[:7])[:, :5]
    )


def test_the_state_takes_the_rank_along_and_refuses_another() -> None:
    small = learned(rank=3)
    buffer = io.BytesIO()
    torch.save(small.state_dict(), buffer)
    buffer.seek(0)
    config = ContinualConfig(memory_rank=3)
    other = ContinualCnaps(features_model("simple", WIDTH), config)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(answers(other), answers(small))
    assert other.memory_bytes() == small.memory_bytes()
    with pytest.raises(ClCnapsError, match="3 directions of a class"):
        ContinualCnaps(features_model("simple", WIDTH)).load_state_dict(small.state_dict())


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(BadInputError, match="memory_rank must be at least 1"):
        ContinualConfig(memory_rank=0)
    with pytest.raises(BadInputError, match="covariance of all classes seen"):
        ContinualConfig(covariance="task", shortlist=5)
    for name in ("transductive", "protonet"):
        with pytest.raises(BadInputError, match="without refinement"):
            ContinualCnaps(features_model(name, WIDTH), ContinualConfig(shortlist=5))


def test_the_classifier_of_many_classes(tmp_path: Path) -> None:
    plain = FewShotClassifier(input="features")
    small = FewShotClassifier(input="features", memory_rank=3, shortlist=6)
    for task in range(TASKS):
        features, labels = images(task)
        for classifier in (plain, small):
            classifier.partial_fit(features.numpy(), labels.numpy())
    query, truth = queries()
    assert (small.predict(query.numpy()) == truth.numpy()).mean() > 0.9
    assert (small.predict(query.numpy()) == plain.predict(query.numpy())).mean() > 0.9
    probabilities = small.predict_proba(query.numpy())
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    far = 50 + query[:2].numpy()
    assert small.predict(far, unknown=0.95).tolist() == ["unknown", "unknown"]
    again = FewShotClassifier.load(small.save(tmp_path / "many.safetensors"))
    np.testing.assert_allclose(again.predict_proba(query.numpy()), probabilities)
    small.forget(3)
    assert 3 not in small.predict(query.numpy())
