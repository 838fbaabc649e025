"""Titles and labels of few-shot charts."""

from __future__ import annotations

from collections.abc import Sequence

from cl_cnaps.results.few_shot import FewShotRecord
from cl_cnaps.results.wording import adaptation_words, count, method_name

_PARTS = 5


def record_words(record: FewShotRecord) -> list[str]:
    """Target, model, backbone, adaptation, tasks."""
    first = record.entries[0]
    return [
        first["target"],
        method_name(first),
        first["backbone"],
        adaptation_words(first["adaptation"]),
        f"{count(first['tasks'], 'task')} of each kind",
    ]


def told_apart(records: Sequence[FewShotRecord]) -> tuple[list[str], list[str]]:
    """A label for each record from what differs between them, and what all share, for the title."""
    words = [record_words(record) for record in records]
    differing = [part for part in range(_PARTS) if len({row[part] for row in words}) > 1]
    shared = [words[0][part] for part in range(_PARTS) if part not in differing]
    labels = [", ".join(row[part] for part in differing) for row in words]
    if len(set(labels)) < len(labels):  # the same setting: records are told apart by their ids
        labels = [
            " ".join(filter(None, (label, r.record.id))) for label, r in zip(labels, records, strict=True)
        ]
    return labels, shared
