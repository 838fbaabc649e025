"""A trial of every record by itself: one that the pages cannot show is listed with the reason, and holds up no other.

What a page needs of a record is known best by the page: rather than a second list of keys and types, which would fall
behind the first, each record's pages are made once without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.records.record import Record
from cl_cnaps.report.site.ablations import ablations_page
from cl_cnaps.report.site.active import active_page
from cl_cnaps.report.site.continual import continual_page
from cl_cnaps.report.site.few_shot import few_shot_page
from cl_cnaps.report.site.gather import Gathered, Unreadable, form_unknown
from cl_cnaps.report.view import verb_of
from cl_cnaps.report.site.overview import overview_page
from cl_cnaps.report.site.pages import Page, render
from cl_cnaps.report.site.records import record_page, records_page

_SECTIONS: Mapping[str, Callable[[Gathered], Page]] = {
    "stream": continual_page,
    "evaluate": few_shot_page,
    "active": active_page,
    "ablate": ablations_page,
}


def showable(found: Gathered) -> Gathered:
    """Return the records that can be shown; the others are among the unreadable."""
    shown = Gathered(unreadable=[*found.unreadable])
    for name, record in found.records.items():
        try:
            _try(Gathered({name: record}), record)
        except ClCnapsError as error:
            shown.unreadable.append(Unreadable(record.path, str(error)))
        except Exception as error:  # whatever a page does not expect
            shown.unreadable.append(Unreadable(record.path, form_unknown(error)))
        else:
            shown.records[name] = record
    return shown


def _try(alone: Gathered, record: Record) -> None:
    pages = [overview_page(alone), records_page(alone), record_page(record)]
    if section := _SECTIONS.get(verb_of(record)):
        pages.append(section(alone))
    for page in pages:
        render(page).encode()
