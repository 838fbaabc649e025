"""Scoring: the same for any number of workers, blind to labels, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from few_shot.coloured import coloured_folders, query_logits, run_tasks
from models.small import small_model

from cl_cnaps.data import Source, open_source
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.features.frozen import FeatureRows, constant_film
from cl_cnaps.few_shot import run
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.run import (
    Outcome,
    ScoreTasks,
    encode_tasks,
    score,
    with_packed_images,
)
from cl_cnaps.few_shot.targets import TaskShape, make_sampler
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import Film

SHAPES = (TaskShape(5, 3, 6), TaskShape(None, None, 6))


@pytest.fixture
def coloured(tmp_path: Path) -> EvaluationSet:
    return evaluation_set(open_source(f"folder:{coloured_folders(tmp_path / 'photos', 8, 16)}"))


def outcomes(
    model: CnapsModel, tasks_of: EvaluationSet, workers: int, tasks: int = 6, images: Source | None = None
) -> list[Outcome]:
    images = images or with_packed_images(tasks_of, model.backbone.info.image_size)
    with Workers(model, workers) as pool:
        return list(run_tasks(pool, tasks_of, images, SHAPES, tasks=tasks, seed=5))


def scores(found: list[Outcome]) -> list[object]:
    return [(outcome.scores, outcome.episodes_digest) for outcome in found]


@pytest.mark.parametrize("adaptation", ["film", "none"])
def test_results_are_the_same_for_any_number_of_workers(coloured: EvaluationSet, adaptation: str) -> None:
    model = small_model("transductive", adaptation=adaptation)
    here = outcomes(model, coloured, 0)
    assert [o.embedded_once for o in here] == [adaptation == "none"] * 2
    assert scores(outcomes(model, coloured, 2)) == scores(here)
    if adaptation == "film":
        images = with_packed_images(coloured, 32)
        with Workers(model, 1) as pool:
            assert scores(list(run_tasks(pool, coloured, images, SHAPES, tasks=6, seed=5))) == scores(here)
            # An error in a worker reaches the caller.
            work = ScoreTasks(make_sampler(coloured, SHAPES[0], seed=0), images)
            with pytest.raises(BadInputError, match="episode index"):
                list(pool.each(work, [range(-1, 0)]))
    assert [one.index for one in here[0].scores] == list(range(6))


@pytest.mark.parametrize("name", ["simple", "transductive"])
def test_encodings_are_those_of_the_tasks(coloured: EvaluationSet, name: str) -> None:
    model = small_model(name)
    images = with_packed_images(coloured, model.backbone.info.image_size)
    with Workers(model, 0) as pool:
        found = encode_tasks(pool, coloured, images, SHAPES[0], tasks=2, seed=5)
    episode = make_sampler(coloured, SHAPES[0], seed=5).episode(1)
    size, parts = model.backbone.info.image_size, []
    for rows in (episode.support, episode.query):
        of_class = (rows[rows[:, 0] == position, 1].tolist() for position in range(episode.way))
        pairs = zip(episode.class_names, of_class, strict=True)
        parts.append(torch.cat([images.images("test", *pair, size) for pair in pairs]))
    with torch.no_grad():
        encoding = model.encode(parts[0], torch.tensor(episode.support[:, 0]), parts[1])
    assert encoding is not None
    assert found[1] == pytest.approx(encoding.tolist(), rel=1e-3)


def test_fewer_tasks_are_the_first_of_more(coloured: EvaluationSet) -> None:
    model = small_model("simple")
    assert outcomes(model, coloured, 0, 6)[1].scores[:3] == outcomes(model, coloured, 0, 3)[1].scores


def test_frozen_features_equal_embedded_ones(
    coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("simple", adaptation="none")
    once = outcomes(model, coloured, 0)
    monkeypatch.setattr(run, "MOST_FEATURE_BYTES", 0)
    each = outcomes(model, coloured, 0)
    assert [o.embedded_once for o in each] == [False, False]
    assert scores(each) == scores(once)


def test_classes_that_differ_in_colour_are_told_apart(coloured: EvaluationSet) -> None:
    found = outcomes(small_model("simple", adaptation="none"), coloured, 0, 10)
    assert found[0].accuracy.mean > 0.8  # chance: 0.2
    assert found[0].accuracy.mean == pytest.approx(np.mean([one.accuracy for one in found[0].scores]))


def test_images_too_many_to_pack_are_read_as_they_are(
    coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("simple")
    packed_scores = scores(outcomes(model, coloured, 0))
    monkeypatch.setattr(run, "MOST_PACKED_BYTES", 0)
    assert with_packed_images(coloured, 32) is coloured.images
    assert scores(outcomes(model, coloured, 0)) == packed_scores


def a_task(tasks_of: EvaluationSet) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    episode = make_sampler(tasks_of, TaskShape(5, 3, 6), seed=0).episode(0)
    images = []
    for rows in (episode.support, episode.query):
        images.append(
            torch.cat(
                [tasks_of.images.images("test", episode.class_names[k], [i], 32) for k, i in rows.tolist()]
            )
        )
    return images[0], torch.tensor(episode.support[:, 0]), images[1], episode.way


@pytest.mark.parametrize("name", ["simple", "protonet", "cnaps"])
def test_inductive_logits_ignore_other_queries(coloured: EvaluationSet, name: str) -> None:
    model = small_model(name)  # type: ignore[arg-type]
    support, labels, query, way = a_task(coloured)
    together = query_logits(model, support, labels, query, way)
    for some in ([0], [7, 3], list(range(29, -1, -1))):
        alone = query_logits(model, support, labels, query[some], way)
        torch.testing.assert_close(alone, together[some], rtol=1e-4, atol=1e-4)


def test_transductive_logits_see_the_query_set(coloured: EvaluationSet) -> None:
    model = small_model("transductive")
    support, labels, query, way = a_task(coloured)
    together = query_logits(model, support, labels, query, way)
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(0))
    shuffled = query_logits(model, support, labels, query[order], way)
    torch.testing.assert_close(shuffled, together[order], rtol=1e-3, atol=1e-3)
    alone = query_logits(model, support, labels, query[:1], way)
    assert not torch.allclose(alone, together[:1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("adaptation", ["film", "none"])
def test_query_labels_never_reach_the_model(
    coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch, adaptation: str
) -> None:
    model = small_model("transductive", adaptation=adaptation)
    seen: list[torch.Tensor] = []
    for method in ("encode", "adapt", "fold", "embed_folded", "fit", "logits"):
        original = getattr(model, method)

        def spy(*arguments: object, original: object = original, **named: object) -> object:
            seen.extend(a for a in (*arguments, *named.values()) if isinstance(a, torch.Tensor))
            return original(*arguments, **named)  # type: ignore[operator]

        monkeypatch.setattr(model, method, spy)
    with Workers(model, 0) as pool:
        list(run_tasks(pool, coloured, coloured.images, SHAPES[:1], tasks=1, seed=0))
    whole_numbers = [tensor for tensor in seen if tensor.dtype == torch.int64]
    assert whole_numbers
    for tensor in whole_numbers:  # 5 ways, 3 shots: the support labels, never the 30 of the queries
        assert tensor.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


def test_scores_count_right_answers_by_class(coloured: EvaluationSet) -> None:
    episode = make_sampler(coloured, TaskShape(5, 1, 2), seed=0).episode(0)
    logits = torch.nn.functional.one_hot(torch.tensor([0, 1, 1, 1, 4, 4, 3, 3, 4, 4]), 5).float()
    found = score(episode, logits)
    assert found.correct == (1, 2, 0, 2, 2)
    assert found.queries == (2,) * 5
    assert found.accuracy == 0.7
    with pytest.raises(BadInputError, match="shape"):
        score(episode, logits[:3])


def test_logits_that_are_not_finite_are_an_error(
    coloured: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("simple")
    monkeypatch.setattr(model, "logits", lambda _head, query: torch.full((len(query), 5), torch.nan))
    with pytest.raises(ClCnapsError, match="not finite"):
        query_logits(model, *a_task(coloured))


def test_constant_features_are_recognised() -> None:
    assert constant_film(small_model("simple", adaptation="none")) is not None
    model = small_model("simple")
    assert constant_film(model) is None
    with torch.no_grad():
        for name, parameter in model.adaptation.heads.named_parameters():
            if name.endswith("weight"):
                parameter.zero_()
    film = constant_film(model)
    assert isinstance(film, Film)
    same = model.adapt(torch.randn(64, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(a, b) for a, b in zip(film.gammas, same.gammas, strict=True))


def test_static_modulation_is_constant(coloured: EvaluationSet) -> None:
    model = small_model("simple", modulation="static")
    draw = torch.Generator().manual_seed(0)
    model.source_encodings = {name: torch.randn(64, generator=draw) for name in ("one", "other")}
    film, (support, labels, _) = constant_film(model), a_task(coloured)[:3]
    assert film is not None
    same = model.adapt(model.encode(support, labels))
    assert all(torch.equal(a, b) for a, b in zip(film.gammas, same.gammas, strict=True))


def test_rows_of_features_are_of_used_images_once(coloured: EvaluationSet) -> None:
    sampler = make_sampler(coloured, TaskShape(5, 3, 6), seed=0)
    episodes = [sampler.episode(i) for i in range(4)]
    rows = FeatureRows(episodes, coloured.images)
    used = {(e.class_names[k], i) for e in episodes for k, i in np.concatenate([e.support, e.query]).tolist()}
    chunks = rows.in_chunks(7)
    listed = [(name, i) for chunk in chunks for name, part in chunk.images for i in part]
    assert rows.count == len(listed) == len(used)
    assert set(listed) == used
    assert [chunk.first_row for chunk in chunks] == list(range(0, rows.count, 7))
    found = rows.of(episodes[0].class_names, episodes[0].query)
    assert [listed[row] for row in found] == [
        (episodes[0].class_names[k], i) for k, i in episodes[0].query.tolist()
    ]


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(BadInputError, match="workers"):
        Workers(small_model("simple"), -1)
