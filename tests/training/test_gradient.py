"""The gradient of a task: in one piece and in parts, and what of it the optimiser sees."""

from __future__ import annotations

import pytest
import torch
from models.small import small_model, small_task
from torch import Tensor

from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.config import ModelName
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.step import NotFiniteError, add_gradient


def batch(seed: int = 0) -> EpisodeBatch:
    task = small_task(way=3, shot=5, n_query=8, seed=seed)
    return EpisodeBatch(task.way, task.support, task.labels, task.query, torch.arange(8) % 3)


def training(**changes: object) -> Optimisation:
    return Optimisation(tasks=1, **{"tasks_per_step": 2, **changes})  # type: ignore[arg-type]


def gradients(model: CnapsModel, options: Optimisation) -> tuple[float, dict[str, Tensor]]:
    model.train().zero_grad()
    score = add_gradient(model, batch(), options)
    return score.loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("name", "variant"),
    [("simple", "plain"), ("transductive", "plain"), ("transductive", "plus"), ("transductive", "cot"),
     ("cnaps", "plain")],
)  # fmt: skip
def test_parts_give_the_gradient_of_the_whole(name: ModelName, variant: str, norm: str) -> None:
    encoder = SetEncoderConfig(norm=norm)  # type: ignore[arg-type]
    whole = small_model(name, encoder=encoder, variant=variant).double()
    parts = small_model(name, encoder=encoder, variant=variant).double()
    loss, expected = gradients(whole, training())
    loss_in_parts, found = gradients(parts, training(images_at_once=4))
    assert loss_in_parts == pytest.approx(loss, rel=1e-9)
    assert set(found) == set(expected) == {n for n, p in whole.named_parameters() if p.requires_grad}
    largest = max(float(grad.abs().max()) for grad in expected.values())
    for key, grad in expected.items():
        assert torch.allclose(found[key], grad, rtol=1e-6, atol=1e-9 * largest), key
    for (key, one), other in zip(whole.named_buffers(), parts.buffers(), strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=1e-9), f"running statistics {key}"


def test_the_backbone_gets_no_gradient() -> None:
    model = small_model("simple")
    gradients(model, training())
    assert all(p.grad is None for p in model.backbone.parameters())


def test_gradient_is_that_of_the_stated_loss() -> None:
    """Mean cross-entropy over the tasks of a step, plus the regulariser whole."""
    model = small_model("simple").double()
    _, found = gradients(model, training(film_regulariser=0.01))
    task = batch()
    model.zero_grad()
    logits = model(task.support_images, task.support_labels, task.query_images, task.way)
    loss = torch.nn.functional.cross_entropy(logits / model.temperature, task.query_labels)
    (loss / 2 + 0.01 * model.adaptation.regularisation()).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert torch.allclose(found[name], parameter.grad, rtol=1e-8, atol=1e-12), name


def test_training_through_the_refinement_is_another_loss() -> None:
    plain, _ = gradients(small_model("transductive"), training())
    through, _ = gradients(small_model("transductive", variant="plus"), training())
    assert plain != pytest.approx(through, rel=1e-4)


@pytest.mark.parametrize("metric", ["dot", "cosine", "l1", "euclidean", "root-riemannian"])
def test_every_metric_trains_with_a_loss_of_its_own(metric: str) -> None:
    squared, _ = gradients(small_model("simple", beta=1e-3), training())
    loss, found = gradients(small_model("simple", metric=metric, beta=1e-3), training())
    assert loss != pytest.approx(squared, rel=1e-4)
    assert all(bool(torch.isfinite(grad).all()) for grad in found.values())


@pytest.mark.parametrize(("name", "variant"), [("simple", "gmm"), ("transductive", "gmm-em")])
def test_mixtures_train_on_the_support_alone(name: ModelName, variant: str) -> None:
    plain, _ = gradients(small_model(name), training())
    loss, found = gradients(small_model(name, variant=variant), training())
    assert loss != pytest.approx(plain, rel=1e-4)
    assert all(bool(torch.isfinite(grad).all()) for grad in found.values())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("simple").train()
    plain = model.embed
    monkeypatch.setattr(model, "embed", lambda images, film: plain(images, film) * value)
    with pytest.raises(NotFiniteError, match="NaN or Inf"):
        add_gradient(model, batch(), training())
    monkeypatch.setattr(model, "embed", plain)
    monkeypatch.setattr(model, "logits", lambda head, query: torch.full((8, 3), value, requires_grad=True))
    with pytest.raises(NotFiniteError, match="the loss is nan"):
        add_gradient(model, batch(), training())
