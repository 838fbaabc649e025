"""Curves of active learning as they stand in the records of `cl-cnaps active`: accuracy against labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cl_cnaps.active.protocol import PAPER
from cl_cnaps.errors import BadInputError
from cl_cnaps.results.record import Record
from cl_cnaps.results.wording import STRATEGIES, adaptation_words, is_plain, model_name

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


def read_curves(record: Record) -> list[Curve]:
    """All curves of a record."""
    return [_curve(record, entry) for entry in record.summary["results"]]


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
