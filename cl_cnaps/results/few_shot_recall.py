"""Class recall against shots: how often queries of a class are recognised, by its number of support images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from cl_cnaps.evaluation.run import Outcome


def recall_rows(outcomes: Iterable[tuple[str, Outcome]]) -> Iterator[dict[str, Any]]:
    """For every data set, task shape and number of shots: the classes of all tasks that had so many, and their recall.

    `recall` is the mean over those classes and `std` its spread (1/n).
    """
    for name, outcome in outcomes:
        by_shots: defaultdict[int, list[float]] = defaultdict(list)
        for one in outcome.scores:
            for shots, queries, correct in zip(one.shots, one.queries, one.correct, strict=True):
                by_shots[shots].append(correct / queries)
        for shots, recalls in sorted(by_shots.items()):
            mean = math.fsum(recalls) / len(recalls)
            yield {
                "data_set": name,
                "shape": outcome.shape.words,
                "queries": outcome.shape.queries,
                "shots": shots,
                "classes": len(recalls),
                "recall": mean,
                "std": math.sqrt(math.fsum((recall - mean) ** 2 for recall in recalls) / len(recalls)),
            }
