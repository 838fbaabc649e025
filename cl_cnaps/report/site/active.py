"""The page of active learning: curves for each task and model, and the areas under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from cl_cnaps.active.protocol import FIGURE_ALPHABETS, PAPER
from cl_cnaps.errors import BadInputError
from cl_cnaps.names import STRATEGIES
from cl_cnaps.records.record import Record
from cl_cnaps.report.plots.style import strategy_colours
from cl_cnaps.report.site.gather import Gathered
from cl_cnaps.report.view import record_link
from cl_cnaps.report.site.pages import Page
from cl_cnaps.report.table import EMPTY, Cell, Column, TableRow, Table, accuracy, words
from cl_cnaps.report.labels import (
    Named,
    adaptation_words,
    count,
    distinct_names,
    is_plain,
    model_name,
    percent,
)

SOURCES = {"cifar10": "CIFAR-10", "omniglot": "Omniglot"}
"""What `fig:active-learning-figure` is of, as the paper writes it."""


@dataclass(frozen=True)
class Curve:
    """One model and strategy on one task; accuracies are fractions."""

    record: Record
    source: str
    alphabet: str | None
    """Of Omniglot: the alphabet whose characters are the classes."""
    model: str
    plain: bool
    """Whether it is of the model itself and not of a variant."""
    adaptation: str | None
    strategy: str
    labels: list[int]
    mean: list[float]
    half: list[float] | None
    """Half of the 95 % interval over runs at each number of labels; None for a single run."""
    area: float
    area_half: float | None
    gain: float | None
    """Area above random's; None of random itself."""
    gain_half: float | None
    runs: int
    notes: tuple[str, ...]

    @property
    def task(self) -> str:
        """Source, and alphabet where there is one."""
        return self.title if self.alphabet is None else f"{self.title}, {self.alphabet}"

    @property
    def title(self) -> str:
        """The source as a person would write it."""
        return SOURCES.get(self.source, self.source)

    @property
    def method(self) -> str:
        """`Simple CNAPS, frozen features`."""
        return ", ".join(filter(None, (model_name(self.model), adaptation_words(self.adaptation))))

    @property
    def of_the_paper(self) -> bool | None:
        """Whether labels, rounds, runs and images are the paper's; None for a source that it does not have."""
        paper = PAPER.get(self.source)
        return None if paper is None else self.record.config.get("protocol") == asdict(paper)

    @property
    def protocol(self) -> str:
        """`short protocol` where the paper has another for the source, else nothing."""
        return "short protocol" if self.of_the_paper is False else ""

    @property
    def strategy_name(self) -> str:
        """The strategy as the paper calls it."""
        return STRATEGIES.get(self.strategy, self.strategy)


MODELS = ("simple", "transductive")
FEATURES = ("film", "none")
"""What `fig:active-learning-figure` is of."""
_DECIDED_BY_TASK = (
    "source",
    "strategies",
    "alphabets",
    "classes",
    "data_digest",
    "backbone_digest",
    "model_config",
)


def active_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps active` measured."""
    curves = ordered_curves(found)
    names = distinct_names(
        [Named(c.method, f"{c.task}, {c.strategy}", c.record.config, c.record.id) for c in curves],
        _DECIDED_BY_TASK,
    )
    colours = strategy_colours(curve.strategy for curve in curves)
    return Page(
        "active.html",
        "Active learning",
        template="active.html",
        scripts=("choosing.js", "tables.js", "marks.js", "curves.js"),
        content={
            "missing": missing_active(found),
            "table": _areas(curves, names),
            "curves": [
                _drawn(curve, name, colours[curve.strategy])
                for curve, name in zip(curves, names, strict=True)
            ],
            "notes": list(dict.fromkeys(note for curve in curves for note in curve.notes)),
        },
    )


def curves_of(found: Gathered) -> list[Curve]:
    """Return the curves of all records."""
    return [curve for view in found.active for curve in read_curves(view.record)]


def ordered_curves(found: Gathered) -> list[Curve]:
    """Task by task, and adapted before frozen features, as in the paper's figure."""
    tasks = list(dict.fromkeys(curve.task for curve in curves_of(found)))

    def place(curve: Curve) -> tuple[int, int, bool]:
        model = MODELS.index(curve.model) if curve.model in MODELS else len(MODELS)
        return tasks.index(curve.task), model, curve.adaptation == "none"

    return sorted(curves_of(found), key=place)


def missing_active(found: Gathered) -> list[tuple[str, str]]:
    """What the paper's figure shows and no record does in full, with the command that makes it."""
    missing = []
    for source, title in SOURCES.items():
        for model in MODELS:
            mine = [c for c in curves_of(found) if (c.source, c.model, c.plain) == (source, model, True)]
            states = {kind: _state([c for c in mine if c.adaptation == kind], source) for kind in FEATURES}
            for state in ("", "in part", "short protocol only"):
                if kinds := [kind for kind in FEATURES if states[kind] == state]:
                    both = len(kinds) == len(FEATURES)
                    what = f"{model_name(model)} on {title}" + (
                        "" if both else f", {adaptation_words(kinds[0])}"
                    )
                    command = f"cl-cnaps active --source {source} --model {model} --paper"
                    command += f" --adaptation {'both' if both else kinds[0]}"
                    missing.append((f"{what} ({state})" if state else what, command))
    return missing


def _state(curves: Sequence[Curve], source: str) -> str | None:
    """None if all curves of the figure are there with the paper's protocol; else how much of it is."""
    tasks: Sequence[str | None] = FIGURE_ALPHABETS if source == "omniglot" else (None,)
    there = {(curve.alphabet, curve.strategy) for curve in curves if curve.of_the_paper}
    if there.issuperset(product(tasks, STRATEGIES)):
        return None
    if there:
        return "in part"
    return "short protocol only" if curves else ""


def _areas(curves: Sequence[Curve], names: Sequence[str]) -> Table:
    rows = []
    for curve, name in zip(curves, names, strict=True):
        link = record_link(curve.record)
        first, last = (None if curve.half is None else curve.half[place] for place in (0, -1))
        gain = EMPTY if curve.gain is None else _points(curve.gain, curve.gain_half, link)
        rows.append(
            TableRow(
                [
                    words(name, link),
                    words(curve.task),
                    words(curve.strategy_name),
                    accuracy(curve.mean[0], first, link),
                    accuracy(curve.mean[-1], last, link),
                    accuracy(curve.area, curve.area_half, link),
                    gain,
                    Cell(f"{curve.labels[0]} to {curve.labels[-1]}", curve.labels[-1]),
                    Cell(count(curve.runs, "run"), curve.runs),
                    EMPTY
                    if curve.of_the_paper is None
                    else words("paper" if curve.of_the_paper else "short"),
                ]
            )
        )
    columns = [
        Column("model", numeric=False),
        Column("task", numeric=False),
        Column("strategy", numeric=False),
        Column("first accuracy, %"),
        Column("last accuracy, %"),
        Column("area, %"),
        Column("gain over random, points"),
        Column("labels"),
        Column("runs"),
        Column("protocol", numeric=False),
    ]
    return Table("areas", "Areas under the curves", columns, rows)


def _points(mean: float, half: float | None, link: str) -> Cell:
    sign = "+" if mean > 0 and percent(mean) != percent(0.0) else ""
    return Cell(sign + percent(mean, half), 100 * mean, href=link)


def _drawn(curve: Curve, name: str, colour: str) -> dict[str, Any]:
    """What curves.js draws, in per cent."""
    return {
        "source": curve.source,
        "task": curve.task,
        "chart": name,
        "line": curve.strategy_name,
        "colour": colour,
        "at": curve.labels,
        "mean": [100 * value for value in curve.mean],
        "half": None if curve.half is None else [100 * value for value in curve.half],
        "href": record_link(curve.record),
    }


def read_curves(record: Record) -> list[Curve]:
    """All curves of a record."""
    return [_curve(record, entry) for entry in record.summary["rows"]]


def _curve(record: Record, entry: dict[str, Any]) -> Curve:
    labels, mean, half = entry["labels"], entry["accuracy"]["mean"], entry["accuracy"]["ci95"]
    if not labels or not len(labels) == len(mean) == len(half):
        raise BadInputError(
            f"a curve has {len(labels)} numbers of labels, {len(mean)} accuracies and {len(half)} intervals"
        )
    gain = entry["gain"] or {"mean": None, "ci95": None}
    return Curve(
        record=record,
        source=entry["source"],
        alphabet=entry["alphabet"],
        model=entry["model"],
        plain=is_plain(entry),
        adaptation=entry["adaptation"],
        strategy=entry["strategy"],
        labels=[int(number) for number in labels],
        mean=[float(value) for value in mean],
        half=None if None in half else [float(value) for value in half],
        area=float(entry["area"]),
        area_half=entry["area_ci95"],
        gain=gain["mean"],
        gain_half=gain["ci95"],
        runs=int(entry["runs"]),
        notes=(
            f"{SOURCES.get(entry['source'], entry['source'])}: {entry['test_classes']}. "
            f"Images: {entry['data_source']}. Seen in pre-training: {entry['seen_in_pretraining']}.",
        ),
    )
