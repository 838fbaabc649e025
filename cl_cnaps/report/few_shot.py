"""Records of few-shot evaluations: their tables, notes, headlines and charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.targets import GROUPS, QUERIES
from cl_cnaps.metrics.intervals import average_rank
from cl_cnaps.report.labels import (
    ABSENT,
    adaptation_words,
    count,
    duration,
    is_plain,
    method_name,
    paper_cell,
    percent,
)
from cl_cnaps.report.paper import TrainedOn, ablation_figure, few_shot_figure, meta_dataset_rows, row_of
from cl_cnaps.report.table import Cell, Column, Table, TableRow, words
from cl_cnaps.report.view import Headline, Row, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEN_MARK = "*"
GROUP_WORDS = {"in": "average, in-domain", "out": "average, out-of-domain", "all": "average, all"}
_PAPERS = {"paper": "paper", "paper_imagenet": "paper, trained on ImageNet"}
_HERE = "here"


class FewShotView(View):
    """A record of an evaluation."""

    verb = "evaluate"

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each data set and shape of tasks."""
        return [
            {**row, "paper": _paper(row, "benchmark"), "paper_imagenet": _paper(row, "imagenet")}
            for row in self.record.summary["rows"]
        ]

    @cached_property
    def averages(self) -> dict[str, Row]:
        """Group of data sets -> mean accuracy and rank; empty where there are no groups."""
        return averages(self.rows)

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:
        """Accuracy on each data set and shape of tasks."""
        return [
            task_headline("", row, "paper_imagenet" if trained_on == "imagenet" else "paper")
            for row in self.rows
        ]

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """A table for each record."""
        return [few_shot_table(view) for view in views]

    @classmethod
    def figures(cls, views: Sequence[Self]) -> Iterator[tuple[str, Figure]]:
        """Yield recall against shots, the shapes of tasks and, if varied, accuracy against queries."""
        from cl_cnaps.report.plots.few_shot import few_shot_figures

        return few_shot_figures(views)


def task_headline(before: str, row: Mapping[str, Any], column: str = "paper") -> Headline:
    """Return a row's accuracy as a headline; a mark where the model has seen test classes."""
    of = f"{before}{data_set_words(row)}, {row['shape']}, {row['queries']} queries"
    return Headline(of, row["accuracy"]["mean"], row["accuracy"]["ci95"], row[column])


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, Row]:
    """Return average accuracy (a fraction) and rank of each group, beside the paper's over the same data sets.

    Ranks are among the paper's rows and this model, on the data sets that are there: the paper's own row gets its rank
    on the same ones. Empty unless every data set has a domain and was evaluated once; a group of one data set has none.
    """
    names = [row["data_set"] for row in rows]
    if any(row["domain"] is None for row in rows) or len(set(names)) != len(names):
        return {}
    scores: dict[str, dict[str, tuple[float, float]]] = dict(meta_dataset_rows())
    scores[_HERE] = {
        row["data_set"]: (100 * row["accuracy"]["mean"], 100 * (row["accuracy"]["ci95"] or 0.0))
        for row in rows
    }
    found: dict[str, Row] = {}
    for group, domains in GROUPS.items():
        members = [row for row in rows if row["domain"] in domains]
        data_sets = [row["data_set"] for row in members]
        if len(members) < 2:
            continue  # that is no average
        theirs = row_of(members[0]["model"]) if is_plain(members[0]) else None
        found[group] = {
            "data_sets": data_sets,
            "accuracy": fmean(row["accuracy"]["mean"] for row in members),
            **{key: paper_average(members, key) for key in _PAPERS},
            "rank": average_rank(_HERE, data_sets, scores),
            "paper_rank": average_rank(theirs, data_sets, scores) if theirs else None,
            "methods_ranked": len(scores),
        }
    return found


def paper_average(members: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the paper's mean in per cent over the same data sets; None where it lacks one of them."""
    figures = [member[key] for member in members]
    return None if any(figure is None for figure in figures) else fmean(figure["mean"] for figure in figures)


def _paper(row: Mapping[str, Any], trained_on: TrainedOn) -> Row | None:
    """The paper's cell; none for other numbers of queries than it has."""
    if row["queries"] != QUERIES:
        return None
    figure = None
    if is_plain(row):
        figure = few_shot_figure(row["data_set"], row["shape"], row["model"], trained_on)
    elif trained_on == "benchmark" and (row["variant"] == "plain" or row["metric"] == "mahalanobis"):
        figure = ablation_figure(row["data_set"], row["shape"], row["variant"], row["metric"])
    if figure is None:
        return None
    return {"mean": figure.mean, "interval": figure.interval, "unit": "percent", "label": figure.label}


def data_set_words(row: Mapping[str, Any]) -> str:
    """Return a data set's title, its stand-in if any, and a mark if its test classes are not new to the model."""
    stand_in = f" ({row['stand_in']})" if row["stand_in"] else ""
    return f"{row['title']}{stand_in}" + (SEEN_MARK if seen(row) else "")


def seen(row: Mapping[str, Any]) -> bool:
    """Whether test classes are not new to the backbone or to its adaptation."""
    return bool(row["classes_seen_in_pretraining"] or row["classes_seen_in_training"])


def few_shot_table(view: FewShotView) -> Table:
    """Make the table of one record: a row for each data set and shape, and averages over domains."""
    rows, means = view.rows, view.averages
    several = len({row["shape"] for row in rows}) > 1, len({row["queries"] for row in rows}) > 1
    papers = [key for key in _PAPERS if any(row[key] for row in rows)]
    columns = [Column("data set", numeric=False)]
    columns += [Column("tasks of", numeric=False)] * several[0]
    columns += [Column("queries a class", short="queries")] * several[1]
    columns.append(Column("accuracy, %", short="accuracy %"))
    columns += [
        Column(f"{_PAPERS[key]}, %", short="paper %" if key == "paper" else "ImageNet %") for key in papers
    ]
    columns += [Column("rank"), Column("paper's rank", short="paper's")] * bool(means)
    columns.append(Column("seconds", short="sec."))
    blanks = sum(several)

    def of_row(row: Row) -> TableRow:
        cells = [data_set_words(row), *[row["shape"]] * several[0], *[str(row["queries"])] * several[1]]
        cells += [percent(row["accuracy"]["mean"], row["accuracy"]["ci95"])]
        cells += (
            [paper_cell(row[key]) for key in papers] + ["", ""] * bool(means) + [duration(row["seconds"])]
        )
        return TableRow([Cell(text) for text in cells])

    def of_group(group: str) -> TableRow:
        mean = means[group]
        rank = ABSENT if mean["paper_rank"] is None else f"{mean['paper_rank']:.1f}"
        cells = [GROUP_WORDS[group], *[""] * blanks, percent(mean["accuracy"])]
        cells += [_per_cent(mean[key]) for key in papers] + [f"{mean['rank']:.1f}", rank, ""]
        return TableRow([Cell(text) for text in cells], ends_section=group != "all")

    lines: list[TableRow] = []
    for domain in ("in", "out", None):
        lines += [of_row(row) for row in rows if row["domain"] == domain]
        lines += [
            TableRow([Cell(text) for text in (one["title"], "missing", *[""] * (len(columns) - 2))])
            for one in view.missing
            if one["domain"] == domain
        ]
        if domain in means:
            lines.append(of_group(domain))
    if "all" in means and [means["all"]["data_sets"]] != [
        means[one]["data_sets"] for one in means if one != "all"
    ]:
        lines.append(of_group("all"))  # unless it is the average of the one domain that is there
    first = rows[0]
    shape = "variable ways and shots" if first["shape"] == "variable" else first["shape"]
    shared = [
        first["target"],
        method_name(first),
        first["backbone"],
        adaptation_words(first["adaptation"]),
        "" if several[0] else shape,
        count(first["tasks"], "task"),
    ]
    return Table("", "Few-shot tasks", columns, lines, [word for word in shared if word], notes(rows, means))


def comparison_table(views: Sequence[FewShotView]) -> Table:
    """Make a table of several records: a row for each data set and shape, a column for each record, then the paper's.

    The records must be of the same tasks on the same images, or one of the first of another's; the columns then say
    how many. Below stands, for every data set, which classes and images were used and what the model had seen of them.
    """
    _check(views)
    first = views[0]
    several = len({_shape(row) for row in first.rows}) > 1
    by_method: dict[str, FewShotView] = {}
    for view in views:
        by_method.setdefault(method_name(view.rows[0]), view)
    papers = [
        (name, key) for name, view in by_method.items() for key in _PAPERS if any(r[key] for r in view.rows)
    ]
    columns = [Column("data set", numeric=False), *(Column(_here(view, views)) for view in views)]
    columns += [Column(f"{name}, {_PAPERS[key]}") for name, key in papers]
    shown = most_seen(row for view in views for row in view.rows)  # a mark is of any column
    lines = []
    for position, row in enumerate(shown):
        label = data_set_words(row) + (f", {_shape(row)}" if several else "")
        ours = [view.rows[position]["accuracy"] for view in views]
        cells = [label, *(percent(one["mean"], one["ci95"]) for one in ours)]
        lines.append([*cells, *(paper_cell(by_method[name].rows[position][key]) for name, key in papers)])
    lines += [[one["title"], *["missing"] * len(views), *[""] * len(papers)] for one in first.missing]
    for group, title in GROUP_WORDS.items():
        if group in first.averages:
            ours = [percent(view.averages[group]["accuracy"]) for view in views]
            lines.append([title, *ours, *(_per_cent(by_method[n].averages[group][key]) for n, key in papers)])
    if "all" in first.averages:
        ranks = [f"{view.averages['all']['rank']:.1f}" for view in views]
        theirs = [
            by_method[name].averages["all"]["paper_rank"] if key == "paper" else None for name, key in papers
        ]
        lines.append(["average rank", *ranks, *("" if rank is None else f"{rank:.1f}" for rank in theirs)])
    rows = [TableRow([words(text) for text in line]) for line in lines]
    return Table("", "Few-shot tasks", columns, rows, notes=data_set_notes(shown))


def _check(views: Sequence[FewShotView]) -> None:
    if not views:
        raise BadInputError("a comparison needs at least one record")
    for one, other in combinations(views, 2):
        if len(one.rows) != len(other.rows) or not all(map(_same_tasks, one.rows, other.rows)):
            raise BadInputError(f"{other.path} and {one.path} are not of the same tasks and images")


def _same_tasks(one: Row, other: Row) -> bool:
    """Whether the tasks of one are the tasks of the other, or the first of them."""
    # Task i is a function of the classes, the shape, the seed and i.
    decide = ("data_digest", "test_classes", "ways", "shots", "queries", "seed")
    if any(one[key] != other[key] for key in decide):
        return False
    return bool(one["tasks"] != other["tasks"] or one["episodes_digest"] == other["episodes_digest"])


def _here(view: FewShotView, views: Sequence[FewShotView]) -> str:
    """The record's method, and what distinguishes it from other records of that method."""
    row = view.rows[0]
    same = [other.rows[0] for other in views if method_name(other.rows[0]) == method_name(row)]
    parts = [method_name(row), adaptation_words(row["adaptation"])]
    if len({other["backbone"] for other in same}) > 1:
        parts.append(row["backbone"])
    if len({other.rows[0]["tasks"] for other in views}) > 1:
        parts.append(count(row["tasks"], "task"))
    return ", ".join(filter(None, parts))


def _shape(row: Row) -> str:
    return f"{row['shape']}, {row['queries']} queries" if row["queries"] != QUERIES else str(row["shape"])


def _per_cent(mean: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.1f}"


def notes(rows: Sequence[Mapping[str, Any]], means: Mapping[str, Row]) -> list[str]:
    """Return what a reader must know before comparing a few-shot number with another, most important first."""
    weights = f"Adaptation weights: {rows[0]['weights_source']}."
    notes = [_backbone(rows[0]), weights, *data_set_notes(rows)[1:]]
    if any(row["accuracy"]["ci95"] is not None for row in rows):
        notes.append("±: 95 % interval over tasks, 1.96 std / sqrt(tasks).")
    for key, trained in (
        ("paper", "its backbone and adaptation trained on the benchmark's training classes"),
        ("paper_imagenet", "trained on ImageNet without the test classes"),
    ):
        if labels := dict.fromkeys(row[key]["label"] for row in rows if row[key]):
            notes.append(f"Paper: {', '.join(labels)}; {trained}, and tested on complete data sets.")
    if means:
        ranked = max(group["methods_ranked"] for group in means.values())
        notes.append(
            f"Rank: average over the data sets that are there, among this model and the paper's {ranked - 1} rows; "
            "paper's: that of the paper's row of this model, on the same data sets. In-domain is what the "
            "paper's models were meta-trained on; a model that was not, like one without trained adaptation, has no "
            "such domain."
        )
    return notes


def data_set_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how the backbone was trained, which test classes it has seen, and what was used of each data set."""
    notes = [_backbone(rows[0])]
    if known := dict.fromkeys(row["title"] for row in rows if row["classes_seen_in_pretraining"]):
        notes.append(
            f"* The backbone was trained on classes that are test classes here ({', '.join(known)}): "
            "these are not new classes to it, and the numbers are no measure of learning new ones."
        )
    if trained := dict.fromkeys(row["title"] for row in rows if row["classes_seen_in_training"]):
        notes.append(
            f"* The adaptation was trained on some of the classes that are tested ({', '.join(trained)})."
        )
    first_of_each = {row["data_set"]: row for row in reversed(rows)}
    return notes + [_data_set(row) for row in reversed(first_of_each.values())]


def most_seen(rows: Iterable[Row]) -> list[Row]:
    """Return of several models' rows one for each data set and shape: that whose model has seen most of it."""
    chosen: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[key] for key in ("data_set", "shape", "queries"))
        if key not in chosen or _seen(row) > _seen(chosen[key]):
            chosen[key] = row
    return list(chosen.values())


def _seen(row: Row) -> tuple[bool, bool]:
    return bool(row["classes_seen_in_training"]), row["adaptation"] != "none"


def _backbone(first: Mapping[str, Any]) -> str:
    pretraining = first["backbone_pretraining"]
    how = "not pre-trained" if pretraining == "none" else f"pre-trained: {pretraining}"
    return f"Backbone {first['backbone']}, {how}."


def _data_set(row: Mapping[str, Any]) -> str:
    """Return a sentence on the classes, the images, and what of them the model has seen."""
    stand_in = f"{row['stand_in']} stands in for it; " if row["stand_in"] else ""
    return (
        f"{row['title']}: {stand_in}{row['test_classes']}. Images: {row['data_source']}. "
        f"Seen in pre-training: {row['seen_in_pretraining']}. Seen in training: {row['seen_in_training']}."
    )
