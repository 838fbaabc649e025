"""How many images an evaluation embeds, known before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from cl_cnaps.data.source import total
from cl_cnaps.evaluation.evaluation_sets import EvaluationSet
from cl_cnaps.evaluation.frozen import constant_film
from cl_cnaps.evaluation.tasks import TaskShape, make_sampler
from cl_cnaps.models.cnaps import CnapsModel

_LOOKED_AT = 20
"""Tasks whose size stands for that of all."""


def embeddings(
    model: CnapsModel, tasks_of: EvaluationSet, shapes: Sequence[TaskShape], tasks: int, seed: int
) -> int:
    """About how many images go through the backbone; an image whose features no task changes goes once."""
    images = 0
    looked_at = min(tasks, _LOOKED_AT)
    for shape in shapes:
        sampler = make_sampler(tasks_of, shape, seed)
        episodes = [sampler.episode(index) for index in range(looked_at)]
        images += sum(len(one.support) + len(one.query) for one in episodes) * tasks // looked_at
    return images if constant_film(model) is None else min(images, total(tasks_of.images))
