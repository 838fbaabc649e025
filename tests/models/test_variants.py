"""Variants and metrics as settings of the models: what each computes, which weights serve it, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models.small import small_model, small_task
from torch import Tensor

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.gaussian import class_logits, estimate, refine, support_statistics
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, TransductiveCnaps, make_model
from cl_cnaps.models.config import refinement_bounds
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata
from cl_cnaps.models.weights import save_weights
from cl_cnaps.names import VARIANTS, chosen_model

TASK = small_task(way=3, shot=4, n_query=9)
METRICS = ("dot", "cosine", "l1", "euclidean", "mahalanobis", "root-riemannian")


def of(variant: str, **settings: Any) -> CnapsModel:
    return small_model(
        VARIANTS[variant].model if variant in VARIANTS else "simple", variant=variant, **settings
    )


@torch.no_grad()
def logits(model: CnapsModel) -> Tensor:
    return model(TASK.support, TASK.labels, TASK.query, TASK.way)


@torch.no_grad()
def features(model: CnapsModel) -> tuple[Tensor, Tensor]:
    film = model.adapt(model.encode(TASK.support, TASK.labels, TASK.query))
    both = model.embed(torch.cat([TASK.support, TASK.query]), film)
    return both[: len(TASK.support)], both[len(TASK.support) :]


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_that_of_the_adapted_features(metric: str) -> None:
    model = small_model("simple", metric=metric)
    support, query = features(model)
    gaussians = estimate(support_statistics(support, TASK.labels, TASK.way))
    assert torch.equal(logits(model), class_logits(gaussians, query, metric))  # type: ignore[arg-type]


def test_root_riemannian_decides_as_squared_mahalanobis_with_the_same_weights() -> None:
    for seed in range(5):
        task = small_task(way=5, shot=3, n_query=40, seed=seed)
        answers = [
            small_model("simple", metric=metric)(task.support, task.labels, task.query, task.way)
            for metric in ("mahalanobis", "root-riemannian")
        ]
        assert torch.equal(answers[0].argmax(dim=1), answers[1].argmax(dim=1))
        assert not torch.allclose(answers[0], answers[1])


def test_gmm_is_simple_cnaps_with_the_logits_of_a_mixture() -> None:
    model = of("gmm")
    support, query = features(model)
    expected = class_logits(estimate(support_statistics(support, TASK.labels, TASK.way)), query, "gmm")
    assert torch.equal(logits(model), expected)
    assert not torch.allclose(expected, logits(small_model("simple")))


def test_gmm_em_is_the_refinement_of_a_mixture() -> None:
    model = of("gmm-em")
    support, query = features(model)
    statistics = support_statistics(support, TASK.labels, TASK.way)
    warm = model.temperature.detach()
    assert torch.equal(logits(model), refine(statistics, query, rule="gmm", temperature=warm).logits_QK)
    assert not torch.allclose(logits(model), refine(statistics, query, temperature=warm).logits_QK)


def test_feot_encodes_queries_and_refines_nothing() -> None:
    model = of("feot")
    assert model.uses_queries_to_encode
    assert not model.config.refines
    support, query = features(model)
    expected = class_logits(estimate(support_statistics(support, TASK.labels, TASK.way)), query)
    assert torch.equal(logits(model), expected)
    # The same weights, refined no step: the paper's "No Refinements".
    none = small_model("transductive", refine_min=0, refine_max=0)
    torch.testing.assert_close(logits(none), expected, rtol=1e-4, atol=1e-4)


def test_cot_refines_on_the_features_of_simple_cnaps() -> None:
    model, simple = of("cot"), small_model("simple")
    assert not model.uses_queries_to_encode
    model.load_state_dict(simple.state_dict())
    support, query = features(simple)
    statistics = support_statistics(support, TASK.labels, TASK.way)
    warm = model.temperature.detach()
    assert torch.equal(logits(model), refine(statistics, query, temperature=warm).logits_QK)


def test_responsibilities_by_name() -> None:
    raw, calibrated, auto = (
        small_model("transductive", beta=1e-3, responsibilities=kind)
        for kind in ("raw", "calibrated", "auto")
    )
    support, query = features(raw)
    statistics = support_statistics(support, TASK.labels, TASK.way)

    def refined(model: CnapsModel, covered: bool) -> Tensor:
        assert isinstance(model, TransductiveCnaps)
        with torch.no_grad():
            return model.refined_logits(statistics, query, covered=covered)

    warm = raw.temperature.detach()
    for covered in (True, False):
        assert torch.equal(refined(raw, covered), refine(statistics, query, beta=1e-3).logits_QK)
        expected = refine(statistics, query, beta=1e-3, temperature=warm).logits_QK
        assert torch.equal(refined(calibrated, covered), expected)
        assert torch.equal(refined(auto, covered), refined(calibrated if covered else raw, covered))
    assert not torch.allclose(refined(raw, True), refined(calibrated, True))
    plus = of("plus", beta=1e-3)
    assert plus.config.responsibilities == "raw"  # its temperature fits refined logits
    assert torch.equal(refined(plus, True), refined(raw, True))


def test_transductive_plus_differs_in_training_alone() -> None:
    plus, plain = of("plus"), small_model("transductive", responsibilities="raw")
    assert torch.equal(logits(plus), logits(plain))
    assert not torch.allclose(logits(plus.train()), logits(plain.train()), rtol=1e-4)


def test_unbounded_refinement() -> None:
    free = small_model("transductive", refine_min=0, refine_max="unbounded")
    support, query = features(free)
    statistics = support_statistics(support, TASK.labels, TASK.way)
    warm = free.temperature.detach()
    expected = refine(statistics, query, min_steps=0, max_steps=100, temperature=warm)
    assert expected.steps < 100
    assert torch.equal(logits(free), expected.logits_QK)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"variant": "gmm", "model": "transductive"},
            "gmm is a variant of the model simple, not of transductive",
        ),
        ({"variant": "feot"}, "feot is a variant of the model transductive, not of simple"),
        ({"variant": "em"}, "variant must be one of plain, gmm"),
        ({"variant": "gmm", "metric": "l1"}, "the variant gmm has its own logits"),
        ({"variant": "cot", "model": "transductive", "metric": "l1"}, "the refinement is Mahalanobis's"),
        ({"variant": "plus", "model": "transductive", "adaptation": "none"}, "no such variant"),
        ({"model": "protonet", "metric": "cosine"}, "protonet is the Euclidean metric"),
        ({"model": "cnaps", "metric": "cosine"}, "its classifier is linear"),
        ({"refine_max": "endless"}, "a whole number or unbounded"),
        ({"refine_min": -1, "refine_max": "unbounded"}, "got -1 and unbounded"),
    ],
)
def test_what_is_impossible_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        CnapsConfig(**settings)


def test_without_refinement_the_transductive_encoding_goes_with_any_metric() -> None:
    assert CnapsConfig(model="transductive", variant="feot", metric="cosine").rule == "cosine"


def test_the_model_that_is_meant() -> None:
    assert chosen_model(None, None) == "simple"
    assert chosen_model("protonet", "plain") == "protonet"
    assert chosen_model(None, "cot") == chosen_model("transductive", "cot") == "transductive"
    with pytest.raises(BadInputError, match="unknown variant"):
        chosen_model(None, "em")


def test_bounds_of_the_refinement() -> None:
    assert refinement_bounds(None, None) == (2, 4)
    assert refinement_bounds(None, None, (2, 10)) == (2, 10)
    assert refinement_bounds(None, 0) == (0, 0)
    assert refinement_bounds(None, 1) == (1, 1)
    assert refinement_bounds(6, None) == (6, 6)
    assert refinement_bounds(0, "unbounded") == (0, "unbounded")
    assert refinement_bounds(None, "unbounded") == (2, "unbounded")


class TestWeights:
    """A file serves every variant that has its features."""

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("weights")

    @pytest.fixture(scope="class")
    def made(self, folder: Path) -> dict[str, Path]:
        found = {}
        for name, settings in {
            "simple": {"model": "simple"},
            "transductive": {"model": "transductive"},
            "plus": {"model": "transductive", "variant": "plus"},
            "root": {"model": "simple", "metric": "root-riemannian"},
        }.items():
            model = make_model(CnapsConfig(**settings), load_backbone(), seed=len(found))  # type: ignore[arg-type]
            found[name] = save_weights(folder / f"{name}-efficientnet-lite0.safetensors", model, {}).path
        return found

    @pytest.fixture
    def files(self, made: dict[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
        monkeypatch.setattr("cl_cnaps.models.loading.shipped_root", lambda: folder)
        return made

    def test_shipped_weights_of_variants(self, files: dict[str, Path]) -> None:
        simple, transductive = (load_model(name) for name in ("simple", "transductive"))  # type: ignore[arg-type]
        for variant in ("gmm", "cot"):
            loaded = load_model(variant=variant)
            assert (loaded.weights_digest, loaded.model.config.variant) == (simple.weights_digest, variant)
        for variant in ("gmm-em", "feot"):
            loaded = load_model(variant=variant)
            assert (loaded.weights_digest, loaded.model.config.variant) == (
                transductive.weights_digest,
                variant,
            )
        assert load_model(variant="cot").model.name == "transductive"
        assert load_model(metric="cosine").weights_digest == simple.weights_digest

    def test_plus_needs_weights_that_were_trained_so(self, files: dict[str, Path]) -> None:
        with pytest.raises(MissingDataError, match=r"no weights of Transductive\+"):
            load_model(variant="plus", backbone="resnet18")
        with pytest.raises(ClCnapsError, match="not trained through the refinement"):
            load_model(variant="plus", weights=files["transductive"])
        assert load_model("transductive", weights=files["plus"]).model.config.variant == "plus"
        assert load_model(variant="plus", weights=files["plus"]).model.config.variant == "plus"
        frozen = load_model("transductive", weights=files["plus"], adaptation="none")
        assert frozen.model.config.variant == "plain"

    def test_a_file_keeps_its_metric_unless_another_is_asked_for(self, files: dict[str, Path]) -> None:
        assert load_model(weights=files["root"]).model.config.metric == "root-riemannian"
        assert load_model(weights=files["root"], metric="mahalanobis").model.config.metric == "mahalanobis"

    def test_the_wrong_features_are_refused(self, files: dict[str, Path]) -> None:
        with pytest.raises(
            ClCnapsError, match="for the model transductive, not for transductive, variant cot"
        ):
            load_model(variant="cot", weights=files["transductive"])
        with pytest.raises(ClCnapsError, match="for the model simple, not for transductive, variant feot"):
            load_model(variant="feot", weights=files["simple"])
        with pytest.raises(BadInputError, match="protonet is the Euclidean metric"):
            load_model("protonet", metric="mahalanobis")

    def test_files_of_plain_models_say_nothing_of_variants(self, files: dict[str, Path]) -> None:
        """So that they are the same, to their digest, as before there were any."""
        assert "variant" not in json.loads(read_metadata(files["transductive"])["config"])
        assert json.loads(read_metadata(files["plus"])["config"])["variant"] == "plus"


def test_fit_needs_weights_that_were_trained_for_it() -> None:
    with pytest.raises(MissingDataError, match="fit-lda has weights of its own"):
        load_model("simple", metric="fit-lda", weights="simple-efficientnet-lite0")
