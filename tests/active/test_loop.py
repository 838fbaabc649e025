"""The loop on real models: blind to test labels, sparing with work, the same in any batches and processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from active.muddled import muddled_folders
from hypothesis import given
from hypothesis import strategies as st
from models.small import small_model

from cl_cnaps.active import features as features_module
from cl_cnaps.active import learner as loop
from cl_cnaps.active.acquisition import STRATEGIES
from cl_cnaps.active.features import AdaptedFeatures, Annotator, FrozenFeatures, Labelled, Pictures, Scorer
from cl_cnaps.active.learner import Learner, set_of_each
from cl_cnaps.active.plan import ActivePlan, make_plan
from cl_cnaps.active.run import Curves, all_draws, run_units
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.features.frozen import constant_film
from cl_cnaps.few_shot import run as evaluation_run
from cl_cnaps.few_shot.run import with_packed_images
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models import cnaps
from cl_cnaps.models.cnaps import CnapsModel

ASKED = {"initial": 2, "per_round": 2, "rounds": 3, "runs": 2, "pool": 5, "test": 4}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"folder:{muddled_folders(tmp_path_factory.mktemp('pictures') / 'photos', 4, 11)}"


@pytest.fixture
def plan(photos: str) -> ActivePlan:
    return make_plan(open_source(photos), given=ASKED)


def curves(model: CnapsModel, plan: ActivePlan, workers: int = 0, **options: Any) -> list[Curves]:
    images = with_packed_images(plan.tasks_of, model.backbone.info.image_size)
    with Workers(model, workers) as pool:
        found = list(run_units(pool, plan, images, STRATEGIES, all_draws(plan), **options))
    return [replace(one, seconds=0.0) for one in found]


def learner_of(model: CnapsModel, plan: ActivePlan, query_set: int = 1000) -> tuple[Learner, Annotator, int]:
    draw = plan.draw(plan.tasks[0], 0)
    parts = [Pictures(plan.tasks_of.images, draw.episode.class_names, rows, 32)
             for rows in (draw.episode.support, draw.episode.query)]  # fmt: skip
    film = constant_film(model)
    features: Any = (
        AdaptedFeatures(model, *parts) if film is None else FrozenFeatures.embedded(model, film, *parts)
    )
    sets = [set_of_each(len(part), query_set) for part in parts]
    learner = Learner(model, features, draw.episode.way, candidate_sets_S=sets[0], test_sets_T=sets[1])
    return learner, Annotator(draw.episode.support[:, 0]), draw.initial


def test_curves_count_labels_and_begin_at_one_point(plan: ActivePlan) -> None:
    found = curves(small_model("simple"), plan)
    assert [(one.unit.task, one.unit.run) for one in found] == [(0, 0), (0, 1)]
    for one in found:
        assert list(one.curves) == list(STRATEGIES)
        assert len({points[0] for points in one.curves.values()}) == 1
        for points in one.curves.values():
            assert [point.labels for point in points] == [8, 10, 12, 14]
            assert all(0 <= point.accuracy <= 1 for point in points)
    assert found[0].curves != found[1].curves


@pytest.mark.parametrize("adaptation", ["film", "none"])
def test_results_are_the_same_for_any_number_of_workers(plan: ActivePlan, adaptation: str) -> None:
    model = small_model("transductive", adaptation=adaptation)
    assert curves(model, plan, workers=2) == curves(model, plan)


@pytest.mark.parametrize("name", ["simple", "transductive"])
def test_batches_do_not_change_what_a_model_says(
    plan: ActivePlan, name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(name)

    def said() -> tuple[np.ndarray, torch.Tensor]:
        learner, annotator, initial = learner_of(model, plan, query_set=9)
        fitted = learner.fit(annotator.label(np.arange(initial)))
        return fitted.predictions, fitted.probabilities_PK

    predictions, probabilities = said()
    for module, constant, value in (
        (features_module, "_READ", 3),
        (features_module, "_ENCODE", 2),
        (cnaps, "MEMORY_LIMIT", 1),
    ):
        monkeypatch.setattr(module, constant, value)
    again, others = said()
    assert np.array_equal(again, predictions)
    torch.testing.assert_close(others, probabilities, rtol=1e-3, atol=1e-5)


def test_query_sets_matter_to_transductive_alone(plan: ActivePlan) -> None:
    for name in ("simple", "transductive"):
        model = small_model(name, adaptation="none")  # type: ignore[arg-type]
        whole, parts = (
            learner.fit(annotator.label(np.arange(initial))).probabilities_PK
            for learner, annotator, initial in (learner_of(model, plan, size) for size in (1000, 3))
        )
        assert torch.allclose(whole, parts, rtol=1e-3, atol=1e-4) == (name == "simple")


@given(st.integers(1, 60), st.integers(1, 20))
def test_query_sets_are_as_few_as_can_be_and_of_one_size(count: int, largest: int) -> None:
    sets = set_of_each(count, largest)
    sizes = list(Counter(sets.tolist()).values())
    assert len(sets) == count
    assert sets.tolist() == sorted(sets.tolist())
    assert len(sizes) == -(-count // largest)
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1


def spied(model: CnapsModel, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every tensor that the model is handed from now on."""
    seen: list[torch.Tensor] = []
    for method in ("encode", "adapt", "fold", "embed_folded", "fit", "logits"):
        original = getattr(model, method)

        def spy(*arguments: object, original: Any = original, **named: object) -> object:
            seen.extend(a for a in (*arguments, *named.values()) if isinstance(a, torch.Tensor))
            return original(*arguments, **named)

        monkeypatch.setattr(model, method, spy)
    return seen


@pytest.mark.parametrize("adaptation", ["film", "none"])
def test_a_model_sees_requested_labels_only(
    plan: ActivePlan, adaptation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("transductive", adaptation=adaptation)
    told: list[list[int]] = []

    class Told(Labelled):
        def __post_init__(self) -> None:
            super().__post_init__()
            told.append(self.labels.tolist())

    monkeypatch.setattr("cl_cnaps.active.features.Labelled", Told)
    seen = spied(model, monkeypatch)
    curves(model, plan)
    whole_numbers = [tensor.tolist() for tensor in seen if tensor.dtype == torch.int64]
    assert whole_numbers
    assert all(numbers in told for numbers in whole_numbers)
    assert max(map(len, whole_numbers)) == 14


def test_choices_ignore_test_labels(plan: ActivePlan) -> None:
    """Nor does anything else: with the test labels of another world only the score differs."""
    learner, annotator, initial = learner_of(small_model("transductive"), plan)
    chosen: list[list[list[int]]] = []
    for labels in (np.zeros(16, dtype=np.int64), np.arange(16) % 4):
        asked: list[list[int]] = []

        class Listening(Annotator):
            def label(self, numbers: np.ndarray, asked: list[list[int]] = asked) -> Labelled:
                asked.append(numbers.tolist())
                return super().label(numbers)

        loop.learning_curves(
            learner,
            Listening(annotator._labels),
            Scorer(labels),
            initial=initial,
            strategies=STRATEGIES,
            rounds=2,
            per_round=3,
            generator=np.random.default_rng,
        )
        chosen.append(asked)
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 1 + 3 * 2


def images_embedded(model: CnapsModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    original = model.embed_folded

    def counted(images: torch.Tensor, *rest: Any) -> torch.Tensor:
        counts.append(len(images))
        return original(images, *rest)

    monkeypatch.setattr(model, "embed_folded", counted)
    return counts


def test_frozen_features_are_embedded_once(plan: ActivePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("transductive", adaptation="none")
    counts = images_embedded(model, monkeypatch)
    once = curves(model, plan)
    used = {tuple(row) for run in range(2) for episode in [plan.draw(plan.tasks[0], run).episode]
            for row in (*episode.support.tolist(), *episode.query.tolist())}  # fmt: skip
    assert sum(counts) == len(used)
    counts.clear()
    monkeypatch.setattr(evaluation_run, "MOST_FEATURE_BYTES", 0)  # no table of all runs: once a run then
    assert curves(model, plan) == once
    assert sum(counts) == 2 * 44


def test_random_does_not_embed_the_pool(plan: ActivePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("simple")
    counts, encoded = images_embedded(model, monkeypatch), []
    encoder = model.task_encoder.set_encoder
    encoder.register_forward_hook(lambda _m, inputs, _o: encoded.append(len(inputs[0])))
    curves(model, replace(plan, protocol=replace(plan.protocol, runs=1)))
    # Labelled and test images at each point, the first of which strategies share; the pool where a strategy looks.
    points = 8 + 16 + 3 * sum(n + 16 for n in (10, 12, 14))
    pools = 20 + 2 * (18 + 16)
    assert sum(counts) == points + pools
    assert sum(encoded) <= 28  # each image that any strategy had labelled, once; never again in a later round


def test_batch_statistics_encode_as_the_model_does(plan: ActivePlan) -> None:
    from cl_cnaps.models.encoders import SetEncoderConfig

    for batch_statistics in (False, True):
        model = small_model("transductive", encoder=SetEncoderConfig(batch_statistics=batch_statistics))
        learner, annotator, initial = learner_of(model, plan)
        labelled = annotator.label(np.arange(initial))
        draw = plan.draw(plan.tasks[0], 0)
        rows = (draw.episode.support[:initial], draw.episode.query)
        support, query = (
            Pictures(plan.tasks_of.images, draw.episode.class_names, some, 32).pixels(np.arange(len(some)))
            for some in rows
        )
        with torch.no_grad():
            logits = model(support, torch.from_numpy(labelled.labels), query, draw.episode.way)
        assert np.array_equal(learner.fit(labelled).predictions, logits.argmax(dim=1).numpy())


def test_colours_are_learned(tmp_path: Path) -> None:
    photos = muddled_folders(tmp_path / "photos", 4, 11, spread=25)
    plan = make_plan(open_source(f"folder:{photos}"), given={**ASKED, "initial": 1, "rounds": 6})
    found = curves(small_model("simple", adaptation="none"), plan)
    first = np.mean([one.curves["random"][0].accuracy for one in found])
    last = np.mean([points[-1].accuracy for one in found for points in one.curves.values()])
    assert last > max(first, 0.5)  # chance: 0.25


def test_infinite_answers_and_empty_pools(plan: ActivePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("simple")
    learner, annotator, initial = learner_of(model, plan)
    with pytest.raises(BadInputError, match="7 rounds of 3 labels need more than the 20 images"):
        loop.learning_curves(
            learner, annotator, Scorer(np.zeros(16)), initial=initial, strategies=STRATEGIES, rounds=7,
            per_round=3, generator=np.random.default_rng,
        )  # fmt: skip
    monkeypatch.setattr(model, "logits", lambda _head, query: torch.full((len(query), 4), torch.nan))
    with pytest.raises(ClCnapsError, match="not finite with 8 labels"):
        _ = learner.fit(annotator.label(np.arange(initial))).predictions


def test_real_characters_are_learned(shared_data: Path) -> None:
    from cl_cnaps.models.loading import load_model

    asked = {"rounds": 1, "per_round": 4, "runs": 1, "initial": 2, "pool": 2, "test": 2}
    plan = make_plan(open_source("omniglot", root=shared_data), given=asked, alphabets=("Tibetan",))
    small = replace(plan, tasks=(replace(plan.tasks[0], classes=plan.tasks[0].classes[:6]),))
    model = load_model("transductive", adaptation="none", image_size=64, device="cpu").model
    with Workers(model, 0) as pool:
        (found,) = run_units(pool, small, small.tasks_of.images, STRATEGIES, all_draws(small))
    assert all(points[-1].accuracy > 0.4 for points in found.curves.values())  # chance: 0.17
