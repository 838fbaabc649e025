"""The site as files: made beside its place and moved there whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from cl_cnaps.data.atomic import make_folder, partial_folder, replace_folder, restore
from cl_cnaps.errors import BadInputError
from cl_cnaps.report.site.ablations import ablations_page
from cl_cnaps.report.site.active import active_page
from cl_cnaps.report.site.continual import continual_page
from cl_cnaps.report.site.few_shot import few_shot_page
from cl_cnaps.report.site.gather import Gathered
from cl_cnaps.report.view import page_name
from cl_cnaps.report.site.overview import overview_page
from cl_cnaps.report.site.pages import Page, render
from cl_cnaps.report.site.records import csv_files, record_page, records_page

_MARK = ".cl-cnaps-report"
"""A file that says a folder was made here, so that it may be replaced."""


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
    (folder / "assets").mkdir()
    for asset in resources.files(__package__).joinpath("assets").iterdir():
        if asset.name.endswith((".css", ".js")):
            (folder / "assets" / asset.name).write_bytes(asset.read_bytes())
    (folder / "records").mkdir()
    for page in _pages(found):
        (folder / page.path).write_text(render(page), encoding="utf-8")
    for record in found.records.values():
        raw = folder / "records" / page_name(record)
        raw.mkdir()
        for path in csv_files(record):
            shutil.copyfile(path, raw / path.name)


def _pages(found: Gathered) -> Iterator[Page]:
    yield overview_page(found)
    yield continual_page(found)
    yield few_shot_page(found)
    yield active_page(found)
    yield ablations_page(found)
    yield records_page(found)
    yield from map(record_page, found.records.values())
