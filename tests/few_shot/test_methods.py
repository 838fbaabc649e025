"""Several classifiers on shared features: each as if it were alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from few_shot.coloured import coloured_folders, run_tasks
from models.small import small_model

from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot import run
from cl_cnaps.few_shot.ablations import ABLATIONS, check_rows, left_out, rows_of
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.run import run_methods, with_packed_images
from cl_cnaps.few_shot.targets import TaskShape
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.config import CnapsConfig

SHAPES = (TaskShape(5, 3, 6), TaskShape(None, None, 6))
SETTINGS = {"tasks": 4, "seed": 3}


@pytest.fixture
def coloured(tmp_path: Path) -> EvaluationSet:
    return evaluation_set(open_source(f"folder:{coloured_folders(tmp_path / 'photos', 8, 16, noise=120)}"))


def alone(model: CnapsModel, tasks_of: EvaluationSet) -> list[object]:
    images = with_packed_images(tasks_of, 32)
    with Workers(model, 0) as pool:
        return [o.scores for o in run_tasks(pool, tasks_of, images, SHAPES, **SETTINGS)]


def together(model: CnapsModel, configs: list[CnapsConfig], tasks_of: EvaluationSet) -> list[list[object]]:
    images = with_packed_images(tasks_of, 32)
    with Workers(model, 0) as pool:
        every = list(run_methods(pool, configs, tasks_of, images, SHAPES, **SETTINGS))
    return [[outcomes[place].scores for outcomes in every] for place in range(len(configs))]


@pytest.mark.parametrize("adaptation", ["film", "none"])
def test_every_method_scores_as_its_own_model_does(coloured: EvaluationSet, adaptation: str) -> None:
    model = small_model("transductive", adaptation=adaptation)
    changes: list[dict[str, object]] = [
        {},
        {"variant": "feot"},
        {"variant": "gmm-em"},
        {"variant": "feot", "metric": "l1"},
        {"refine_min": 0, "refine_max": "unbounded"},
        {"refine_min": 0, "refine_max": 1},
    ]
    configs = [replace(model.config, **change) for change in changes]  # type: ignore[arg-type]
    found = together(model, configs, coloured)
    for change, scores in zip(changes, found, strict=True):
        assert scores == alone(small_model("transductive", adaptation=adaptation, **change), coloured), change
    assert len({str(scores) for scores in found}) > 1


def test_cot_classifies_the_features_of_simple_cnaps(coloured: EvaluationSet) -> None:
    simple = small_model("simple")
    config = replace(simple.config, model="transductive", variant="cot")
    cot = small_model("transductive", variant="cot")
    cot.load_state_dict(simple.state_dict())
    (found,) = together(simple, [config], coloured)
    assert found == alone(cot, coloured)


def test_images_are_embedded_once_for_all_methods(
    coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("simple")
    embedded = []
    plain = run.task_features
    monkeypatch.setattr(run, "task_features", lambda *given: embedded.append(1) or plain(*given))
    configs = [replace(model.config, metric=metric) for metric in ("dot", "cosine", "l1", "euclidean")]
    together(model, configs, coloured)  # type: ignore[arg-type]
    assert len(embedded) == SETTINGS["tasks"] * len(SHAPES)


def test_refinements_share_their_rounds(coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("transductive", adaptation="none")
    begun = []
    plain = type(model).refinement
    monkeypatch.setattr(type(model), "refinement", lambda *given: begun.append(1) or plain(*given))
    configs = [
        method.config(model.config, (2, 4)) for method in ABLATIONS["refinement"] if method.key != "simple"
    ]
    together(model, configs, coloured)
    kinds = 2  # of responsibilities
    assert len(begun) == SETTINGS["tasks"] * len(SHAPES) * kinds


def test_a_models_own_way_is_the_model_itself() -> None:
    model = small_model("cnaps")
    assert run.classifier(model, model.config) is model


def test_rows_that_need_weights_of_their_own() -> None:
    shared = ("simple", "transductive", "cot", "feot")
    rows = [method.key for method in rows_of("transduction", shared, (), "film")]
    assert rows == ["feot", "cot", "simple", "transductive"]
    assert [method.key for method in left_out("transduction", rows)] == ["plus"]
    assert rows_of("transduction", (*shared, "plus"), ("plus",), "film")[0].key == "plus"
    with pytest.raises(BadInputError, match="without adaptation it has no row"):
        rows_of("transduction", shared, ("plus",), "none")
    with pytest.raises(
        BadInputError, match="the ablation gmm has no row 'plus' to give weights to; it has gmm"
    ):
        check_rows("gmm", {"plus": "mine"})
