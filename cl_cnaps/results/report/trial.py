"""A trial of every record by itself: one that the pages cannot show is listed with the reason, and holds up no other.

What a page needs of a record is known best by the page: rather than a second list of keys and types, which would fall
behind the first, each record's pages are made once without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.results.record import Record
from cl_cnaps.results.report.ablations import ablations_page
from cl_cnaps.results.report.active import active_page
from cl_cnaps.results.report.continual import continual_page
from cl_cnaps.results.report.few_shot import few_shot_page
from cl_cnaps.results.report.gather import NOT_ITS_FORM, Gathered, Unreadable, form_unknown, verb_of
from cl_cnaps.results.report.overview import overview_page
from cl_cnaps.results.report.pages import Page, render
from cl_cnaps.results.report.records import record_page, records_page

_SECTIONS: Mapping[str, Callable[[Gathered], Page]] = {
    "stream": continual_page,
    "evaluate": few_shot_page,
    "active": active_page,
    "ablate": ablations_page,
}


def sound(found: Gathered) -> Gathered:
    """The records that can be shown; the others are among the unreadable."""
    shown = replace(
        found, records={}, streams=[], few_shot=[], curves=[], ablations=[], unreadable=[*found.unreadable]
    )
    for name, record in found.records.items():
        alone = _alone(found, name, record)
        try:
            _try(alone, record)
        except ClCnapsError as error:
            shown.unreadable.append(Unreadable(record.path, str(error)))
        except NOT_ITS_FORM as error:
            shown.unreadable.append(Unreadable(record.path, form_unknown(error)))
        else:
            shown.records[name] = record
            shown.streams += alone.streams
            shown.few_shot += alone.few_shot
            shown.curves += alone.curves
            shown.ablations += alone.ablations
    return shown


def _alone(found: Gathered, name: str, record: Record) -> Gathered:
    """As if this were the only record."""
    return Gathered(
        {name: record},
        [one for one in found.streams if one.read.record.path == record.path],
        [one for one in found.few_shot if one.record.path == record.path],
        [one for one in found.curves if one.record.path == record.path],
        [one for one in found.ablations if one.record.path == record.path],
    )


def _try(alone: Gathered, record: Record) -> None:
    overview_page(alone)
    records_page(alone)
    record_page(record)
    if section := _SECTIONS.get(verb_of(record)):
        render(section(alone))
