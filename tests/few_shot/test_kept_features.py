"""Features kept on disk: the same scores, and nothing embedded twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from few_shot.coloured import coloured_folders, run_tasks
from models.small import small_model

from cl_cnaps.data import open_source
from cl_cnaps.features.frozen import EmbedOnce
from cl_cnaps.few_shot import run
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.run import Outcome, with_packed_images
from cl_cnaps.few_shot.targets import TaskShape
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.cnaps import CnapsModel

SHAPES = (TaskShape(5, 3, 6), TaskShape(None, None, 6))


@pytest.fixture
def coloured(tmp_path: Path) -> EvaluationSet:
    return evaluation_set(open_source(f"folder:{coloured_folders(tmp_path / 'photos', 8, 16, noise=120)}"))


def outcomes(
    model: CnapsModel, tasks_of: EvaluationSet, keep: Path | None, workers: int = 0
) -> list[Outcome]:
    images = with_packed_images(tasks_of, 32)
    with Workers(model, workers) as pool:
        return list(run_tasks(pool, tasks_of, images, SHAPES, tasks=4, seed=3, keep=keep))


def scores(found: list[Outcome]) -> list[object]:
    return [outcome.scores for outcome in found]


def test_kept_features_serve_other_classifiers(
    coloured: EvaluationSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = tmp_path / "features"
    first, other = small_model("simple"), small_model("simple", metric="l1")
    plain = [scores(outcomes(model, coloured, None)) for model in (first, other)]
    assert plain[0] != plain[1]
    assert scores(outcomes(first, coloured, keep, workers=1)) == plain[0]
    assert len(list(keep.glob("*/*.rows"))) == 8  # shapes x tasks

    def refuse(*_: object) -> None:
        raise AssertionError("embedded again")

    monkeypatch.setattr(run, "task_features", refuse)
    assert scores(outcomes(first, coloured, keep)) == plain[0]
    assert scores(outcomes(other, coloured, keep)) == plain[1]
    # Other features, other files: here those that see the queries.
    with pytest.raises(AssertionError, match="embedded again"):
        outcomes(small_model("transductive"), coloured, keep)


def test_features_of_all_tasks_are_kept_in_one_file_for_every_model(
    coloured: EvaluationSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = tmp_path / "features"
    models = [small_model(name, adaptation="none") for name in ("simple", "transductive", "protonet")]
    plain = [scores(outcomes(model, coloured, None)) for model in models]
    assert scores(outcomes(models[0], coloured, keep, workers=1)) == plain[0]
    assert len(list(keep.glob("*/*.rows"))) == 1
    monkeypatch.setattr(EmbedOnce, "__call__", None)  # whoever embeds again fails
    assert [scores(outcomes(model, coloured, keep)) for model in models] == plain


@pytest.mark.parametrize("modulation", ["static", "swapped"])
def test_features_of_other_mean_encodings_are_not_taken(
    modulation: str, coloured: EvaluationSet, tmp_path: Path
) -> None:
    """A head's weights share the adaptation of the weights they have their features from, not what they encoded."""
    keep, model = tmp_path / "features", small_model("simple", modulation=modulation)
    draw = torch.Generator().manual_seed(0)
    for _ in range(2):
        model.source_encodings = {name: 10 * torch.randn(64, generator=draw) for name in ("a", "b")}
        assert scores(outcomes(model, coloured, keep)) == scores(outcomes(model, coloured, None))
    assert len(list(keep.iterdir())) == 2


def test_a_file_cut_short_is_not_taken_for_features(coloured: EvaluationSet, tmp_path: Path) -> None:
    keep, model = tmp_path / "features", small_model("simple")
    plain = scores(outcomes(model, coloured, keep))
    for file in keep.glob("*/*.rows"):
        file.write_bytes(file.read_bytes()[:-100])
    assert scores(outcomes(model, coloured, keep)) == plain
