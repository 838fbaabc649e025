"""The site as files: pages made from templates, in a folder beside, and moved whole; each record is tried first.

Jinja rather than strings put together in Python: escaping is then what happens, not what must be remembered, and a
page can be read as the HTML it becomes. A name that a template uses and nobody gave is an error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import cl_cnaps
from cl_cnaps.data.atomic import make_folder, partial_folder, replace_folder, restore
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.records.record import Record
from cl_cnaps.report.site.ablations import ablations_page, draw_figures
from cl_cnaps.report.site.active import active_page
from cl_cnaps.report.site.continual import continual_page
from cl_cnaps.report.site.few_shot import few_shot_page
from cl_cnaps.report.site.gather import Gathered, Page, Unreadable, form_unknown
from cl_cnaps.report.site.overview import overview_page
from cl_cnaps.report.site.records import csv_files, record_page, records_page
from cl_cnaps.report.view import page_name, verb_of

_MARK = ".cl-cnaps-report"
"""A file that marks a folder as made here, so that it may be replaced."""
_SECTIONS: Mapping[str, Callable[[Gathered], Page]] = {
    "stream": continual_page,
    "evaluate": few_shot_page,
    "active": active_page,
    "ablate": ablations_page,
}
_MENU = (
    ("index.html", "Overview"),
    ("continual.html", "Continual"),
    ("few-shot.html", "Few-shot"),
    ("active.html", "Active"),
    ("ablations.html", "Ablations"),
    ("records.html", "Records"),
)


def write_site(found: Gathered, out: Path) -> Path:
    """Write the report to the folder `out` and return its front page.

    A report that stands there is replaced as a whole. Any other folder with something in it is refused.
    """
    out = out.absolute()
    restore(out)
    if out.exists() and not (out / _MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise BadInputError(
            f"{out} is there and was not made by `cl-cnaps report`, which replaces the whole folder; "
            f"give another with --out"
        )
    make_folder(out.parent)
    with partial_folder(out.parent, out.name) as making:
        _write(found, making)
        replace_folder(making, out)
    return out / "index.html"


def _write(found: Gathered, folder: Path) -> None:
    (folder / _MARK).write_text(
        "Made by `cl-cnaps report`, which may replace this folder.\n", encoding="utf-8"
    )
    for name in ("assets", "records"):
        (folder / name).mkdir()
    for asset in resources.files(__package__).joinpath("assets").iterdir():
        if asset.name.endswith((".css", ".js")):
            (folder / "assets" / asset.name).write_bytes(asset.read_bytes())
    draw_figures(found, folder)
    for page, text in found.rendered.items() or ((one.path, render(one)) for one in _pages(found)):
        (folder / page).write_text(
            text, encoding="utf-8", errors="backslashreplace"
        )  # of paths, not all UTF-8
    for record in found.records.values():
        raw = folder / "records" / page_name(record)
        raw.mkdir()
        for path in csv_files(record):
            shutil.copyfile(path, raw / path.name)


def _pages(found: Gathered) -> Iterator[Page]:
    yield overview_page(found)
    yield from (section(found) for section in _SECTIONS.values())
    yield records_page(found)
    yield from map(record_page, found.records.values())


def render(page: Page) -> str:
    """Return the page as HTML."""
    return (
        _templates()
        .get_template(page.template)
        .render(
            page=page,
            sections=_MENU,
            up="../" * page.path.count("/"),
            version=cl_cnaps.__version__,
            **page.content,
        )
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `tojson` writes <, > and & as escapes, so that no text ends a script element; NaN is no JSON and is refused.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False}
    return environment


def showable(found: Gathered) -> Gathered:
    """Return the records that can be shown; the others are among the unreadable, with the reason.

    What a page needs of a record is known best by the page: rather than a second list of keys and types, which would
    fall behind the first, the pages are made once of all records, and of halves of them where that fails.
    """
    if not found.unreadable:  # the usual case: these are the pages that are written
        try:
            found.rendered.update({page.path: _encodable(render(page)) for page in _pages(found)})
            draw_figures(found, None)
        except Exception:  # some record is not as the pages need it; which one is found below
            found.rendered.clear()
        else:
            return found
    shown = Gathered(unreadable=[*found.unreadable])
    for records in (list(found.records.values()), *([record] for record in found.again)):
        new = [record for record in records if page_name(record) not in shown.records]
        shown.records.update({page_name(record): record for record in _sift(new, shown.unreadable)})
    return shown


def _sift(records: list[Record], unreadable: list[Unreadable]) -> list[Record]:
    """Return the records whose pages can be made; the others are added to the unreadable."""
    if not records:
        return []
    try:
        _try(records)
    except Exception as error:  # whatever a page does not expect
        if len(records) > 1:
            half = len(records) // 2
            return _sift(records[:half], unreadable) + _sift(records[half:], unreadable)
        reason = str(error) if isinstance(error, ClCnapsError) else form_unknown(error)
        unreadable.append(Unreadable(records[0].path, reason))
        return []
    return records


def _try(records: list[Record]) -> None:
    together = Gathered({page_name(record): record for record in records})
    verbs = {verb_of(record) for record in records}
    sections = [section(together) for verb, section in _SECTIONS.items() if verb in verbs]
    for page in (overview_page(together), records_page(together), *sections, *map(record_page, records)):
        _encodable(render(page))
    draw_figures(together, None)


def _encodable(text: str) -> str:
    text.encode()
    return text
