"""The four models through their one interface: encode, adapt, embed, fit, predict."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from models.small import SmallTask, small_backbone, small_model, small_task

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import estimate, mahalanobis_logits, refine, support_statistics
from cl_cnaps.models.adaptation import GaussianHead, LinearHead
from cl_cnaps.models.cnaps import MODELS, CnapsConfig, CnapsModel, ModelName, SimpleCnaps, make_model
from cl_cnaps.models.encoders import SetEncoderConfig

EVERY = pytest.mark.parametrize("name", list(MODELS))


def predicted(model: CnapsModel, task: SmallTask) -> torch.Tensor:
    """Step by step, as a program uses the interface."""
    with torch.no_grad():
        film = model.adapt(model.encode(task.support, task.labels, task.query))
        head = model.fit(model.embed(task.support, film), task.labels, task.way)
        return model.probabilities(head, model.embed(task.query, film))


@EVERY
def test_probabilities(name: ModelName) -> None:
    task = small_task()
    probabilities = predicted(small_model(name), task)
    assert probabilities.shape == (7, 3)
    assert bool(torch.isfinite(probabilities).all())
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(7))
    if name != "cnaps":  # whose generated classifier is untrained
        assert (probabilities.argmax(dim=1) == torch.arange(7) % 3).all()


@EVERY
def test_one_call_is_the_steps(name: ModelName) -> None:
    model, task = small_model(name), small_task()
    with torch.no_grad():
        logits = model(task.support, task.labels, task.query, task.way)
        torch.testing.assert_close(torch.softmax(logits / model.temperature, dim=1), predicted(model, task))


def test_labels_of_queries_are_no_argument() -> None:
    for model in MODELS.values():
        for method in (model.encode, model.forward, model.logits, model.probabilities):
            named = [p for p in inspect.signature(method).parameters if "label" in p]
            assert named in ([], ["labels_N"]), (model, method)
    model, task = small_model("simple"), small_task()
    with torch.no_grad():
        with_queries = model.encode(task.support, task.labels, task.query)
        assert torch.equal(with_queries, model.encode(task.support, task.labels))  # type: ignore[arg-type]


@EVERY
@torch.no_grad()
def test_predicting_changes_nothing(name: ModelName) -> None:
    model, task = small_model(name, encoder=SetEncoderConfig(batch_statistics=True)), small_task()
    before = copy.deepcopy(model.state_dict())
    film = model.adapt(model.encode(task.support, task.labels, task.query))
    head = model.fit(model.embed(task.support, film), task.labels, task.way)
    head_before = copy.deepcopy(head)
    first = model.probabilities(head, model.embed(task.query, film))
    other = small_task(seed=9)
    predicted(model, other)
    model.probabilities(head, model.embed(other.query, film))
    assert torch.equal(model.probabilities(head, model.embed(task.query, film)), first)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert not model.training
    if isinstance(head, GaussianHead) and isinstance(head_before, GaussianHead):
        assert torch.equal(head.gaussians.means_KD, head_before.gaussians.means_KD)
        assert torch.equal(head.gaussians.rows_RD, head_before.gaussians.rows_RD)


@EVERY
def test_training_reaches_encoder_and_adaptation_but_not_the_backbone(name: ModelName) -> None:
    model, task = small_model(name).train(), small_task()
    assert not any(module.training for module in model.backbone.modules())
    backbone = model.backbone.digest()
    logits = model(task.support, task.labels, task.query, task.way)
    target = torch.arange(7) % 3
    loss = torch.nn.functional.cross_entropy(logits / model.temperature, target)
    loss.backward()
    for key, parameter in model.named_parameters():
        if key.startswith("backbone."):
            assert parameter.grad is None, key
            continue
        assert parameter.grad is not None, key
        assert bool(torch.isfinite(parameter.grad).all()), key
        # A bias before batch statistics has none, and the bias of cnaps' classifier moves all classes alike.
        if not key.endswith("conv.bias") and not key.startswith("classifier.bias"):
            assert bool((parameter.grad != 0).any()), key
    assert model.backbone.digest() == backbone


def test_from_the_identity_two_steps_reach_the_encoder() -> None:
    """The compact heads start at zero, so that only they have a gradient at first."""
    model, task = make_model(CnapsConfig(backbone="small"), small_backbone()).train(), small_task()
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    encoder = model.task_encoder.set_encoder
    for step in range(2):
        optimiser.zero_grad()
        logits = model(task.support, task.labels, task.query, task.way) / model.temperature
        torch.nn.functional.cross_entropy(logits, torch.arange(7) % 3).backward()
        reached = any(bool((p.grad != 0).any()) for p in encoder.parameters() if p.grad is not None)
        assert reached == (step == 1)
        optimiser.step()


@EVERY
def test_chunks_under_a_memory_limit_give_the_same(name: ModelName) -> None:
    model, task = small_model(name), small_task()
    with torch.no_grad():
        folded = model.fold(model.adapt(model.encode(task.support, task.labels, task.query)))
        whole = model.embed_folded(task.query, folded)
        for limit in (0, 1, folded.bytes_per_image * 3):
            torch.testing.assert_close(model.embed_folded(task.query, folded, limit), whole)
    assert folded.images_within(0) == 1
    assert folded.images_within(folded.bytes_per_image * 3) == 3
    assert folded.images_within(folded.bytes_per_image * 3, bytes_to_prepare=folded.bytes_per_image) == 1
    assert folded.images_within(1 << 50) == 64


def test_embedding_with_and_without_a_gradient_agrees() -> None:
    model, task = small_model("simple"), small_task()
    film = model.adapt(model.encode(task.support, task.labels))
    differentiable = model.embed(task.query, film)
    assert differentiable.requires_grad
    with torch.no_grad():
        folded = model.embed(task.query, film)
    assert not folded.requires_grad
    torch.testing.assert_close(differentiable.detach(), folded)


@EVERY
def test_double_precision(name: ModelName) -> None:
    model, task = small_model(name), small_task()
    single = predicted(model, task)
    double = predicted(model.double(), task)  # after a fold in single precision
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-3, atol=1e-4)
    film = model.adapt(model.encode(task.support, task.labels, task.query))
    assert model.embed(task.query, film).dtype == torch.float64


@EVERY
def test_no_queries_and_one_query(name: ModelName) -> None:
    model, task = small_model(name), small_task()
    with torch.no_grad():
        film = model.adapt(model.encode(task.support, task.labels, task.query))
        head = model.fit(model.embed(task.support, film), task.labels, task.way)
        assert model.probabilities(head, model.embed(task.query[:0], film)).shape == (0, 3)
        one = model.probabilities(head, model.embed(task.query[:1], film))
        assert one.shape == (1, 3)
        assert bool(torch.isfinite(one).all())


@EVERY
def test_one_class_and_one_image(name: ModelName) -> None:
    task = small_task(way=1, shot=1)
    torch.testing.assert_close(predicted(small_model(name), task), torch.ones(7, 1))


@EVERY
def test_frozen_features(name: ModelName) -> None:
    model, task = small_model(name, adaptation="none"), small_task()
    assert model.encode(task.support, task.labels, task.query) is None
    assert not model.uses_queries_to_encode
    film = model.adapt(None)
    with torch.no_grad():
        expected = model.backbone(model.backbone.prepare(task.query))
        torch.testing.assert_close(model.embed(task.query, film), expected)
    assert bool(torch.isfinite(predicted(model, task)).all())


def test_simple_is_the_closed_form_and_transductive_its_refinement() -> None:
    task = small_task()
    features = torch.randn(12, 10, generator=torch.Generator().manual_seed(0))
    query = torch.randn(7, 10, generator=torch.Generator().manual_seed(1))
    statistics = support_statistics(features, task.labels, 3)
    closed = mahalanobis_logits(estimate(statistics), query)
    for name in ("simple", "transductive"):
        model = small_model(name, refine_min=1, refine_max=3)  # type: ignore[arg-type]
        head = model.fit(features, task.labels, 3)
        torch.testing.assert_close(model.train().logits(head, query), closed)
        warm = model.temperature.detach()
        expected = refine(statistics, query, min_steps=1, max_steps=3, temperature=warm).logits_QK
        torch.testing.assert_close(model.eval().logits(head, query), closed if name == "simple" else expected)


def test_protonet_measures_squared_distance_to_the_mean() -> None:
    model = small_model("protonet")
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]])
    head = model.fit(features, torch.tensor([0, 0, 1]), 2)
    logits = model.logits(head, torch.tensor([[1.0, 2.0]]))
    torch.testing.assert_close(logits, torch.tensor([[-4.0, -25.0]]))
    assert model.config.metric == "euclidean"


def test_cnaps_generates_a_linear_classifier_from_class_means() -> None:
    model = small_model("cnaps")
    features = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    head = model.fit(features, torch.tensor([0, 0, 1, 1]), 2)
    assert isinstance(head, LinearHead)
    swapped = model.fit(features, torch.tensor([1, 1, 0, 0]), 2)
    assert isinstance(swapped, LinearHead)
    torch.testing.assert_close(head.weight_KD.flip(0), swapped.weight_KD)
    torch.testing.assert_close(model.logits(head, features), features @ head.weight_KD.T + head.bias_K)
    with pytest.raises(BadInputError, match="query features have width 9"):
        model.logits(head, features[:, :9])
    with pytest.raises(BadInputError, match="NaN"):
        model.logits(head, features * float("nan"))


@EVERY
def test_bad_tasks(name: ModelName) -> None:
    model, task = small_model(name), small_task()
    with pytest.raises(BadInputError, match="no support images for 1 of 4 classes: 3"):
        model(task.support, task.labels, task.query, 4)
    with pytest.raises(BadInputError, match="one label per"):
        model(task.support, task.labels[:-1], task.query, 3)
    with pytest.raises(BadInputError, match=r"support images|support set is empty"):
        model(task.support[:0], task.labels[:0], task.query, 3)
    with pytest.raises(BadInputError, match="uint8"):
        model(task.support.float(), task.labels, task.query, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "complex"}, "model must be one of simple"),
        ({"adaptation": "all"}, "adaptation must be one of film, none"),
        ({"generator": "large"}, "generator must be one of"),
        ({"normaliser": "authors"}, "normaliser must be one of paper, released"),
        ({"metric": "taxicab"}, "metric must be one of"),
        ({"model": "transductive", "metric": "euclidean"}, "metric of the model transductive"),
        ({"model": "cnaps", "metric": "euclidean"}, "metric of the model cnaps"),
        ({"beta": 0.0}, "beta must be positive"),
        ({"refine_min": 5}, "refine_min <= refine_max"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        CnapsConfig(**settings)  # type: ignore[arg-type]


def test_every_setting_changes_what_the_model_computes() -> None:
    """Settings that do nothing would be lies in every record."""
    task = small_task()

    @torch.no_grad()
    def outcome(name: ModelName = "transductive", **settings: object) -> torch.Tensor:
        model = small_model(name, **{"beta": 1e-3, **settings})
        film = model.adapt(model.encode(task.support, task.labels, task.query))
        head = model.fit(model.embed(task.support, film), task.labels, 3)
        query = model.embed(task.query, film)
        return torch.cat([model.logits(head, query), model.probabilities(head, query)])

    plain = outcome()
    for settings in (
        {"adaptation": "none"},
        {"encoder": SetEncoderConfig(norm="group")},
        {"normaliser": "released"},
        {"beta": 3.0},
        {"learned_temperature": False},
        {"refine_min": 0, "refine_max": 0},
        {"responsibilities": "raw"},
    ):
        assert not torch.allclose(outcome(**settings), plain, rtol=1e-4), settings
    for metric in ("euclidean", "fit-qda", "fit-lda"):
        assert not torch.allclose(outcome("simple", metric=metric), outcome("simple"), rtol=1e-4)


def test_a_model_refuses_another_models_configuration_and_tiny_images() -> None:
    with pytest.raises(BadInputError, match="a configuration for cnaps was given to SimpleCnaps"):
        SimpleCnaps(CnapsConfig(model="cnaps"), small_backbone())
    backbone = small_backbone()
    object.__setattr__(backbone.info, "image_size", 16)
    with pytest.raises(BadInputError, match="16 pixels are too small for the set encoder"):
        make_model(CnapsConfig(backbone="small", encoder=SetEncoderConfig()), backbone)


def test_fresh_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, two, other = (
        make_model(CnapsConfig(backbone="small"), small_backbone(), seed) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), state)
    weights = [model.adaptation.state_dict()["trunk.0.weight"] for model in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
