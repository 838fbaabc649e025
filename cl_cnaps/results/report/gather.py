"""Which records a report is of: found below some folders, each once, and what of them could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cl_cnaps.errors import ClCnapsError, MissingDataError
from cl_cnaps.results.few_shot import FewShotRecord, read_few_shot_record
from cl_cnaps.results.plots.panel import Panel, panels_of
from cl_cnaps.results.record import Record, config_digest, read_record, record_folders, record_name
from cl_cnaps.results.report.ablation_rows import Ablation, read_ablation
from cl_cnaps.results.report.active_entries import Curve, read_curves
from cl_cnaps.results.streams import StreamRecord, read_stream_record
from cl_cnaps.results.strict_json import to_plain

NOT_ITS_FORM = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What comes of a value that is missing, of another type or too large."""


@dataclass(frozen=True)
class Stream:
    """A stream's record with what is drawn of it: a panel per head."""

    read: StreamRecord
    panels: list[Panel]


@dataclass(frozen=True)
class Unreadable:
    """A folder that looks like a record, and why its numbers are in no table."""

    path: Path
    reason: str


@dataclass
class Gathered:
    """The records of a report, by the command that made them."""

    records: dict[str, Record] = field(default_factory=dict)
    """Page name -> record; all of them, of verbs without a section of their own too."""
    streams: list[Stream] = field(default_factory=list)
    few_shot: list[FewShotRecord] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    ablations: list[Ablation] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)


def gather(paths: Iterable[Path]) -> Gathered:
    """Read every record at or below `paths`.

    Of two records of one verb, name and configuration the one found first stays. A record that is damaged, or
    of a form not known here, does not hold up the others: it is listed with the reason.
    """
    found = Gathered()
    for path in paths:
        folders = list(record_folders(path))
        if not folders:
            raise MissingDataError(
                f"{path} is no run record and holds none; `cl-cnaps stream` makes one and names it"
            )
        for folder in folders:
            _add(found, folder)
    return found


def verb_of(record: Record) -> str:
    """The command that made a record, as its summary says."""
    return str(record.summary.get("verb", record.verb))


def page_name(record: Record) -> str:
    """The file name, without ending, of a record's page: safe whatever the record's folder is called."""
    name = str(record.summary.get("name", record.name))
    return f"{record_name(verb_of(record))}-{record_name(name)}-{config_digest(record.config)[:12]}"


def record_link(record: Record) -> str:
    """Where a record's page is, seen from the site's front page."""
    return f"records/{page_name(record)}.html"


def form_unknown(error: Exception) -> str:
    """The reason why a record is in no table whose values are not of the form expected."""
    return f"its form is not known to this version ({type(error).__name__}: {error})"


def _add(found: Gathered, folder: Path) -> None:
    try:
        record = read_record(folder)
        for part in ("config", "environment", "summary"):
            if not isinstance(getattr(record, part), dict):
                raise ValueError(f"{part}.json is no object")
            to_plain(getattr(record, part), part)  # refuses NaN and infinities, which no table may show
        name = page_name(record)
        if name not in found.records:
            if reader := _READERS.get(verb_of(record)):
                reader(found, record)
            found.records[name] = record
    except ClCnapsError as error:
        found.unreadable.append(Unreadable(folder, str(error)))
    except NOT_ITS_FORM as error:
        found.unreadable.append(Unreadable(folder, form_unknown(error)))


def _add_stream(found: Gathered, record: Record) -> None:
    read = read_stream_record(record.path)
    found.streams.append(Stream(read, panels_of(read)))


def _add_few_shot(found: Gathered, record: Record) -> None:
    found.few_shot.append(read_few_shot_record(record.path))


_READERS: dict[str, Callable[[Gathered, Record], None]] = {
    "stream": _add_stream,
    "evaluate": _add_few_shot,
    "active": lambda found, record: found.curves.extend(read_curves(record)),
    "ablate": lambda found, record: found.ablations.append(read_ablation(record)),
}
