"""Accuracy on validation tasks under four modulations: own, static, swapped and frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import estimate, mahalanobis_logits, support_statistics
from cl_cnaps.models.adaptation import COLUMNS, substitute
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.step import accuracy
from cl_cnaps.training.tasks import TaskData

Scores = dict[str, dict[str, float]]
"""Mean accuracy by column (own, static, swapped, frozen) and source."""


class InterruptedValidationError(Exception):
    """A signal to stop came; nothing was changed."""


@dataclass(frozen=True)
class ValidationTasks:
    """The first tasks of each source, each with the image size that it is shown at; shared out over processes."""

    sources: Mapping[str, TaskData]
    per_source: int
    image_sizes: Sequence[int]
    ranks: Ranks
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[str, int, int], None] = lambda *_: None
    """Gets the source, and how many of how many tasks are done in this pass."""

    def each(self, value: Callable[[int, EpisodeBatch], Tensor], width: int) -> dict[str, Tensor]:
        """Return `value` (width numbers) of every task as T x width by source, the same in all processes."""
        values_STW = torch.zeros(len(self.sources), self.per_source, width, dtype=torch.float64)
        stopped = torch.zeros(1)
        work = [(row, name, task) for row, name in enumerate(self.sources) for task in range(self.per_source)]
        mine = work[self.ranks.rank :: self.ranks.world]
        for done, (row, name, task) in enumerate(mine):
            if self.stop():
                stopped += 1
                break
            batch = self.sources[name][task].batch.to(self.ranks.device)
            size = self.image_sizes[task % len(self.image_sizes)]
            values_STW[row, task] = value(size, batch).double().cpu()
            self.progress(name, done + 1, len(mine))
        if self.ranks.sum(stopped) > 0:
            raise InterruptedValidationError
        return dict(zip(self.sources, self.ranks.sum(values_STW), strict=True))


@torch.no_grad()
def validate(
    model: CnapsModel, tasks: ValidationTasks, frozen: Mapping[str, float] | None = None
) -> tuple[Scores, dict[str, Tensor]]:
    """Return mean accuracy by column and source, and the mean encoding of each source.

    Frozen features are not computed again if their accuracy is given.
    """

    def encoding(size: int, batch: EpisodeBatch) -> Tensor:
        with model.at_image_size(size):
            encoded = model.encode(batch.support_images, batch.support_labels, batch.query_images)
        assert encoded is not None
        return encoded

    like = next(model.parameters())
    means = {name: each.mean(dim=0).to(like) for name, each in tasks.each(encoding, ENCODING_WIDTH).items()}
    wanted = [kind for kind in COLUMNS if kind != "frozen" or not frozen]

    def scores(size: int, batch: EpisodeBatch) -> Tensor:
        own = encoding(size, batch)
        with model.at_image_size(size):
            encodings = [None if kind == "frozen" else substitute(kind, own, means) for kind in wanted]
            return torch.tensor([_accuracy(model, batch, each) for each in encodings])

    by_source = {name: each.mean(dim=0).tolist() for name, each in tasks.each(scores, len(wanted)).items()}
    columns: Scores = {
        kind: {name: values[column] for name, values in by_source.items()}
        for column, kind in enumerate(wanted)
    }
    return (columns if not frozen else {**columns, "frozen": dict(frozen)}), means


def _accuracy(model: CnapsModel, batch: EpisodeBatch, encoding: Tensor | None) -> float:
    """Accuracy on a task; features that are not finite classify nothing, and the next step ends with the reason."""
    try:
        return accuracy(task_logits(model, batch, encoding), batch.query_labels)
    except BadInputError:
        return 0.0


@torch.no_grad()
def task_logits(model: CnapsModel, batch: EpisodeBatch, encoding: Tensor | None) -> Tensor:
    """Logits Q x K of a task under the FiLM of an encoding; without one, on the backbone's own features.

    The generated classifier of CNAPS has no meaning on those; Simple CNAPS's stands in for it.
    """
    features_ND = model.embed(torch.cat([batch.support_images, batch.query_images]), model.adapt(encoding))
    if encoding is None and model.config.model == "cnaps":
        support_ND, query_QD = torch.split(features_ND, [len(batch.support_images), len(batch.query_images)])
        statistics = support_statistics(support_ND, batch.support_labels, batch.way)
        return mahalanobis_logits(estimate(statistics), query_QD)
    return model.task_logits(features_ND, batch.support_labels, batch.way)


def mean(scores: Mapping[str, float]) -> float:
    """Mean over sources."""
    return sum(scores.values()) / len(scores)
