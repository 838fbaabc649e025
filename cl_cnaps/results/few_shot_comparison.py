"""Several models on one target side by side, in Markdown: what was measured here, then the paper's rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.few_shot import Entry, FewShotRecord
from cl_cnaps.results.few_shot_notes import data_set_notes, telling
from cl_cnaps.results.few_shot_tables import GROUP_WORDS, data_set_words
from cl_cnaps.results.wording import ABSENT, adaptation_words, count, method_name, paper_cell, percent

_PAPERS = {"paper": "paper", "paper_imagenet": "paper, trained on ImageNet"}


def comparison_markdown(records: Sequence[FewShotRecord]) -> str:
    """A row for each data set and task shape; a column for each record, then for the paper's rows of its model.

    The records must be of the same tasks on the same images, or one of the first of another's; the columns then say
    how many. Below stands, for every data set, which classes and images were used and what the model had seen of them.
    """
    _check(records)
    first = records[0]
    shapes = len({_shape(entry) for entry in first.entries}) > 1
    methods = list(dict.fromkeys(method_name(record.entries[0]) for record in records))
    papers = [(method, key) for method in methods for key in _PAPERS if _has(records, method, key)]
    header = [
        "data set",
        *(_here(record, records) for record in records),
        *(f"*{method}, {_PAPERS[key]}*" for method, key in papers),
    ]
    lines = [_row(header), _row([":---", *["---:"] * (len(header) - 1)])]
    # A mark is of any column; what it is for stands below.
    shown = telling(entry for record in records for entry in record.entries)
    for position, entry in enumerate(shown):
        label = data_set_words(entry) + (f", {_shape(entry)}" if shapes else "")
        cells = [record.entries[position]["accuracy"] for record in records]
        theirs = [_of(records, method).entries[position][key] for method, key in papers]
        here = [percent(cell["mean"], cell["ci95"]) for cell in cells]
        lines.append(_row([label.replace("*", "\\*"), *here, *map(paper_cell, theirs)]))
    lines += [_row([one["title"], *["missing"] * len(records), *[""] * len(papers)]) for one in first.missing]
    for group, words in GROUP_WORDS.items():
        if group in first.averages:
            here = [percent(record.averages[group]["accuracy"]) for record in records]
            means = [_of(records, method).averages[group][key] for method, key in papers]
            lines.append(_row([words, *here, *(ABSENT if m is None else f"{m:.1f}" for m in means)]))
    if "all" in first.averages:
        here = [f"{record.averages['all']['rank']:.1f}" for record in records]
        ranks = [_of(records, method).averages["all"]["paper_rank"] for method, _ in papers]
        printed = [
            "" if rank is None or key != "paper" else f"{rank:.1f}"
            for (_, key), rank in zip(papers, ranks, strict=True)
        ]
        lines.append(_row(["average rank", *here, *printed]))
    notes = ["- " + note.replace("*", "\\*") for note in data_set_notes(shown)]
    return "\n".join([*lines, "", *notes]) + "\n"


def _check(records: Sequence[FewShotRecord]) -> None:
    if not records:
        raise BadInputError("a comparison needs at least one record")
    for one, other in combinations(records, 2):
        same = len(one.entries) == len(other.entries)
        if not same or not all(map(_same_tasks, one.entries, other.entries)):
            raise BadInputError(f"{other.path} and {one.path} are not of the same tasks and images")


def _same_tasks(one: Entry, other: Entry) -> bool:
    """Whether the tasks of one are the tasks of the other, or the first of them."""
    # Task i is a function of the classes, the shape, the seed and i.
    decide = ("data_digest", "test_classes", "ways", "shots", "queries", "seed")
    if any(one[key] != other[key] for key in decide):
        return False
    return bool(one["tasks"] != other["tasks"] or one["episodes_digest"] == other["episodes_digest"])


def _here(record: FewShotRecord, records: Sequence[FewShotRecord]) -> str:
    """The record's method, and what tells it from other records of that method."""
    entry = record.entries[0]
    same = [o.entries[0] for o in records if method_name(o.entries[0]) == method_name(entry)]
    words = [method_name(entry), adaptation_words(entry["adaptation"])]
    if len({other["backbone"] for other in same}) > 1:
        words.append(entry["backbone"])
    if len({other.entries[0]["tasks"] for other in records}) > 1:
        words.append(count(entry["tasks"], "task"))
    return ", ".join(filter(None, words))


def _of(records: Sequence[FewShotRecord], method: str) -> FewShotRecord:
    return next(record for record in records if method_name(record.entries[0]) == method)


def _has(records: Sequence[FewShotRecord], method: str, key: str) -> bool:
    return any(entry[key] for entry in _of(records, method).entries)


def _shape(entry: Entry) -> str:
    return f"{entry['shape']}, {entry['queries']} queries" if entry["queries"] != 10 else str(entry["shape"])


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
