"""Many tasks on one data set: sampled, predicted by one or several methods, and scored by workers.

Query labels are looked at in `score` and nowhere else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.data import Source, packed
from cl_cnaps.data.source import total
from cl_cnaps.episodes import Episode, EpisodeSampler, episodes_digest
from cl_cnaps.episodes.episode_images import images_of
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.features.frozen import EmbedOnce, FeatureRows, constant_film, empty_table, map_table
from cl_cnaps.features.kept import KeptFeatures
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet
from cl_cnaps.few_shot.targets import TaskShape, make_sampler
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.gaussian import Rounds
from cl_cnaps.metrics.intervals import Accuracy, mean_accuracy
from cl_cnaps.models.adaptation import GaussianHead
from cl_cnaps.models.cnaps import CnapsModel, TransductiveCnaps, make_model
from cl_cnaps.models.config import CnapsConfig


@dataclass(frozen=True)
class EpisodeScore:
    """What a task was like and how many of its queries were right, class by class in way order."""

    index: int
    shots: tuple[int, ...]
    queries: tuple[int, ...]
    correct: tuple[int, ...]

    @property
    def way(self) -> int:
        """Number of classes."""
        return len(self.shots)

    @property
    def accuracy(self) -> float:
        """Share of all queries that were right."""
        return sum(self.correct) / sum(self.queries)


@torch.no_grad()
def task_features(
    model: CnapsModel, support: Tensor, support_labels: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Features S x D and Q x D of uint8 images: encode, adapt and fold once, embed support and query together."""
    network = model.fold(model.adapt(model.encode(support, support_labels, query)))
    features = model.embed_folded(torch.cat([support, query]), network)
    return features[: len(support)], features[len(support) :]


def checked_logits(model: CnapsModel, logits_QK: Tensor) -> Tensor:
    """The logits, or an error if there is one that is not finite."""
    if not bool(torch.isfinite(logits_QK).all()):
        raise ClCnapsError(
            f"the model {model.config.model} gave logits that are not finite on a {logits_QK.shape[1]}-way task"
        )
    return logits_QK


def score(episode: Episode, logits_QK: Tensor) -> EpisodeScore:
    """Compare the largest logit of each query with its label."""
    if logits_QK.shape != (len(episode.query), episode.way):
        raise BadInputError(
            f"{len(episode.query)} queries of {episode.way} classes have logits of shape {tuple(logits_QK.shape)}"
        )
    labels = episode.query[:, 0]
    right = logits_QK.argmax(dim=1).cpu().numpy() == labels
    correct = np.bincount(labels[right], minlength=episode.way)
    return EpisodeScore(
        episode.index,
        tuple(episode.shots.tolist()),
        tuple(episode.queries.tolist()),
        tuple(correct.tolist()),
    )


def classifier(model: CnapsModel, config: CnapsConfig) -> CnapsModel:
    """Return the model that classifies the features of `model` as `config` has it; itself if that is its own way.

    It shares the model's backbone and has no adaptation, since it is given features.
    """
    if config == model.config:
        return model
    # Transductive+ has another training, which the features show, and classifies as Transductive CNAPS.
    variant = "plain" if config.variant == "plus" else config.variant
    size = model.backbone.info.image_size
    head_alone = replace(config, adaptation="none", variant=variant, image_size=size)
    head = make_model(head_alone, model.backbone).to(model.device)
    # What was learned beyond the features, such as the temperature of the responsibilities, is taken along.
    learned = {name: value for name, value in model.state_dict().items() if name in head.state_dict()}
    head.load_state_dict(learned, strict=False)
    return head


@torch.no_grad()
def logits_of_methods(
    classifiers: Sequence[CnapsModel], support_SD: Tensor, support_labels: Tensor, query_QD: Tensor, way: int
) -> list[Tensor]:
    """Logits Q x K of each: fitted on the support set, scored on the query set.

    Refinements that differ in their bounds alone share their rounds.
    """
    labels = support_labels.to(support_SD.device)
    rounds: dict[CnapsConfig, Rounds] = {}
    found = []
    for one in classifiers:
        head, config = one.fit(support_SD, labels, way), one.config
        if isinstance(one, TransductiveCnaps) and config.refines:
            assert isinstance(head, GaussianHead)
            unbounded = replace(config, refine_min=0, refine_max="unbounded")
            if unbounded not in rounds:
                rounds[unbounded] = one.refinement(head.statistics, query_QD)
            logits = rounds[unbounded].end(config.refine_min, config.refine_max).logits_QK
        else:
            logits = one.logits(head, query_QD)
        found.append(checked_logits(one, logits))
    return found


MOST_PACKED_BYTES = 4 << 30
"""Larger data sets are not packed but read image by image, in the workers."""
MOST_FEATURE_BYTES = 2 << 30
"""If the features of all images that tasks use are more, each task embeds its own images."""
_IMAGES_A_CHUNK = 64
_CHUNKS_A_WORKER = 40
"""Tasks go to workers in chunks: many, so that the progress bar moves and all workers end together."""
_MOST_TASKS_A_CHUNK = 8


@dataclass(frozen=True)
class Outcome:
    """The tasks of one shape on one data set, scored."""

    shape: TaskShape
    scores: tuple[EpisodeScore, ...]
    """In the order of the tasks' indices."""
    episodes_digest: str
    embedded_once: bool
    """Whether features did not depend on the task and were shared between tasks."""
    seconds: float

    @property
    def accuracy(self) -> Accuracy:
        """Mean over tasks, with its interval."""
        return mean_accuracy([one.accuracy for one in self.scores])


Progress = Callable[[Sequence[EpisodeScore]], None]
"""Called with the scores of tasks as they come in; with none when other work advanced."""


def with_packed_images(tasks_of: EvaluationSet, image_size: int) -> Source:
    """The images of a data set, decoded once into a file that all workers read, unless they are too many.

    Features are returned as they are.
    """
    if tasks_of.images.feature_width is not None:
        return tasks_of.images
    bytes_each = (1 if tasks_of.images.grey else 3) * image_size**2
    if total(tasks_of.images) * bytes_each > MOST_PACKED_BYTES:
        return tasks_of.images
    return packed(tasks_of.images, image_size)


def run_methods(
    workers: Workers,
    methods: Sequence[CnapsConfig],
    tasks_of: EvaluationSet,
    images: Source,
    shapes: Sequence[TaskShape],
    *,
    tasks: int,
    seed: int,
    progress: Progress = lambda _: None,
    keep: Path | None = None,
) -> Iterator[tuple[Outcome, ...]]:
    """Score the tasks 0 to `tasks` - 1 of each shape by several ways to classify the features of the workers' model.

    For each shape an outcome of each method, in their order. Nothing but `seconds`, those of all methods together,
    depends on the number of workers. Features that do not depend on the task are embedded once for all shapes, in the
    first outcome's seconds. Features are kept in the folder `keep`, if any, and taken from there.
    """
    if tasks < 1:
        raise BadInputError(f"tasks is {tasks}; 1 is the fewest")
    start = time.perf_counter()
    samplers = [make_sampler(tasks_of, shape, seed) for shape in shapes]
    kept = None if keep is None else KeptFeatures.under(keep, workers.model, images)
    with features_of_all(workers, samplers, images, tasks, progress, kept) as (rows, file):
        for shape, sampler in zip(shapes, samplers, strict=True):
            digest = episodes_digest(sampler.episode(i) for i in range(tasks))
            scores: list[tuple[EpisodeScore, ...]] = []
            work = ScoreTasks(sampler, images, rows, file, tuple(methods), kept)
            for chunk in workers.each(work, _chunks(tasks, workers.count)):
                scores += chunk
                progress([first for first, *_ in chunk])
            seconds = time.perf_counter() - start
            yield tuple(
                Outcome(shape, of_method, digest, rows is not None, seconds)
                for of_method in zip(*scores, strict=True)
            )
            start = time.perf_counter()


@dataclass
class ScoreTasks:
    """Work: score the tasks of a range of indices, by every method."""

    sampler: EpisodeSampler
    source: Source
    rows: FeatureRows | None = None
    file: Path | None = None
    """Features embedded once, and which row is which image's; without them tasks embed their own images."""
    methods: tuple[CnapsConfig, ...] = ()
    """Ways to classify; by default the model's own."""
    kept: KeptFeatures | None = None
    """Where features that depend on the task are kept, if anywhere."""
    _table: Tensor | None = field(default=None, repr=False)
    _classifiers: list[CnapsModel] = field(default_factory=list, repr=False)

    def __call__(self, model: CnapsModel, unit: range) -> list[tuple[EpisodeScore, ...]]:
        """Score the tasks of these indices."""
        if not self._classifiers:
            self._classifiers += [classifier(model, config) for config in self.methods or (model.config,)]
        return [self._score(model, self.sampler.episode(index)) for index in unit]

    def _score(self, model: CnapsModel, episode: Episode) -> tuple[EpisodeScore, ...]:
        labels = torch.tensor(episode.support[:, 0])
        support, query = self._features(model, episode, labels)
        every = logits_of_methods(self._classifiers, support, labels, query, episode.way)
        return tuple(score(episode, logits) for logits in every)

    def _features(self, model: CnapsModel, episode: Episode, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Features of the support and the query images."""
        if self.rows is None or self.file is None:
            if self.kept is None:
                return self._embedded(model, episode, labels)
            return self.kept.of(episode, model.device, lambda: self._embedded(model, episode, labels))
        if self._table is None:
            self._table = map_table(self.file)
        support, query = (
            self._table[torch.from_numpy(self.rows.of(episode.class_names, rows))].to(model.device)
            for rows in (episode.support, episode.query)
        )
        return support, query

    def _embedded(self, model: CnapsModel, episode: Episode, labels: Tensor) -> tuple[Tensor, Tensor]:
        support, query = (_images(self.source, model, episode, query=query) for query in (False, True))
        return task_features(model, support, labels, query)


@dataclass
class EncodeTasks:
    """Work: the task encodings of a range of indices, with four significant digits."""

    sampler: EpisodeSampler
    source: Source

    @torch.no_grad()
    def __call__(self, model: CnapsModel, unit: range) -> list[list[float]]:
        """Encode the tasks of these indices; the query images are read for a model that encodes them."""
        encodings = []
        for episode in map(self.sampler.episode, unit):
            support = _images(self.source, model, episode, query=False)
            uses = model.uses_queries_to_encode
            query = _images(self.source, model, episode, query=True) if uses else None
            encoding = model.encode(support, torch.tensor(episode.support[:, 0]), query)
            if encoding is None:
                raise BadInputError("a model without adaptation has no task encoding")
            encodings.append([float(f"{number:.4g}") for number in encoding.tolist()])
        return encodings


def encode_tasks(
    workers: Workers, tasks_of: EvaluationSet, images: Source, shape: TaskShape, *, tasks: int, seed: int
) -> list[list[float]]:
    """Return the encodings of the tasks 0 to `tasks` - 1 by the workers' model."""
    work = EncodeTasks(make_sampler(tasks_of, shape, seed), images)
    return [one for chunk in workers.each(work, _chunks(tasks, workers.count)) for one in chunk]


def _images(source: Source, model: CnapsModel, episode: Episode, *, query: bool) -> Tensor:
    rows = episode.query if query else episode.support
    return images_of(source, episode.class_names, rows, model.backbone.info.image_size)


@contextmanager
def features_of_all(
    workers: Workers,
    samplers: Sequence[EpisodeSampler],
    images: Source,
    tasks: int,
    progress: Progress,
    kept: KeptFeatures | None = None,
) -> Iterator[tuple[FeatureRows, Path] | tuple[None, None]]:
    """The features of all images that the tasks use, in a file for as long as this lasts; or nothing."""
    if constant_film(workers.model) is None:
        yield None, None
        return
    rows = FeatureRows((sampler.episode(i) for sampler in samplers for i in range(tasks)), images)
    width = workers.model.backbone.info.width
    if 4 * rows.count * width > MOST_FEATURE_BYTES:
        yield None, None
        return
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-features-") as folder:
        file = Path(folder) / "features.npy"
        if (table := None if kept is None else kept.table(rows)) is not None:
            np.save(file, table.numpy())
        else:
            empty_table(file, rows.count, width)
            for _ in workers.each(EmbedOnce(images, file), rows.in_chunks(_IMAGES_A_CHUNK)):
                progress(())
            if kept is not None:
                kept.keep_table(rows, map_table(file))
        yield rows, file


def _chunks(tasks: int, workers: int) -> list[range]:
    """The indices of all tasks, in chunks."""
    size = max(1, min(_MOST_TASKS_A_CHUNK, tasks // (_CHUNKS_A_WORKER * max(1, workers))))
    return [range(first, min(first + size, tasks)) for first in range(0, tasks, size)]
