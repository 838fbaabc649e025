"""`cl-cnaps report` and `plot`: a site of static pages, and charts, from the records of other commands."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import echo, footer
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign, reason

_USUAL = ("results", "runs")


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("site"),
    show_default=True,
    help="Folder for the site; a report that stands there is replaced as a whole.",
)
@click.option("--open", "show", is_flag=True, help="Show the front page in the web browser.")
@options.as_json
@options.quiet
def report(paths: tuple[Path, ...], out: Path, show: bool, as_json: bool, quiet: bool) -> None:
    """Make a site of static pages from run records.

    A PATH is a record or any folder above some; without one, results/ and runs/ are taken, where they hold records.
    The pages hold every table and chart, the paper's numbers beside ours, and a page for each record with its
    configuration, environment, raw numbers and the command that runs it again. Experiments of the paper without a
    record are shown as missing. The site needs no server and no network: open its index.html.

    \b
    Examples:
      cl-cnaps report --open
      cl-cnaps report runs/stream/split-mnist --out mnist-site
    """
    from cl_cnaps.records.record import record_folders
    from cl_cnaps.report.site import gather, showable, write_site

    sources = paths or tuple(path for path in map(Path, _USUAL) if any(record_folders(path)))
    if not sources:
        raise MissingDataError(
            "neither results/ nor runs/ here holds a record; name a folder of records, or make one with "
            "`cl-cnaps stream`"
        )
    options.writable(out)
    found = showable(gather(sources))
    for one in found.unreadable:
        echo(f"not read: {one.path}: {one.reason}", err=True)
    front = write_site(found, out)
    if as_json:
        refused = [{"record": str(one.path), "reason": one.reason} for one in found.unreadable]
        echo(json.dumps({"records": len(found.records), "not_read": refused, "site": str(front)}))
    elif not quiet:
        footer([("records", len(found.records)), ("site", front)])
    if show:
        import webbrowser

        if not webbrowser.open(front.as_uri()):
            echo("no web browser was found; open the file above in one", err=True)


@click.command()
@click.argument(
    "records", metavar="RECORD...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the figures.  [default: figures/ in the record; with several records, figures/ here]",
)
@click.option(
    "--kind",
    type=click.Choice(["bars", "steps", "heatmap", "comparison", "confusion", "all"]),
    help="Streams only. bars: after every step, one bar per task seen (the paper's chart). steps: mean over the tasks "
    "seen against step, a line per model and encoding. heatmap: task against step. comparison: the final accuracy of "
    "several models. confusion: which classes are taken for which after the last task.  [default: all, and the charts "
    "of other records]",
)
@click.option(
    "--format", "formats", default="png,svg", show_default=True, help="png, svg, or both with a comma."
)
@options.as_json
@options.quiet
def plot(
    records: tuple[Path, ...], out: Path | None, kind: str | None, formats: str, as_json: bool, quiet: bool
) -> None:
    """Draw records: what `stream`, `evaluate`, `active` and `ablate` wrote.

    A RECORD is a folder that one of these commands wrote, or any folder above some. Several are drawn together, those
    of one command at a time:

    \b
    stream    those that differ in encoding only make a grid of bar charts,
              those of one benchmark a figure of lines
    evaluate  class recall against shots, a line for each record; the ways and
              shots of tasks; accuracy against queries, where they were varied
    active    accuracy against labels, a figure for each source
    ablate    adaptation: encodings and FiLM distances; refinement: the grid;
              shots: class recall; queries: accuracy against queries; the others
              are tables and have no chart

    Records of several commands are drawn into a folder for each command.

    \b
      cl-cnaps plot runs/stream --kind bars
      cl-cnaps plot runs/evaluate
      cl-cnaps plot results/active --out results/figures/active --format png
    """
    if out is not None:
        options.writable(out)
    wanted = tuple(dict.fromkeys(part.strip() for part in formats.split(",")))
    drawn = _draw(records, out, kind, wanted)
    if as_json:
        echo(json.dumps({"figures": list(map(str, drawn))}))
    elif not quiet:
        footer([("figure", path) for path in drawn])


def _draw(
    records: tuple[Path, ...], out: Path | None, kind: str | None, formats: tuple[str, ...]
) -> list[Path]:
    """Draw records; where they cannot be drawn, the first that cannot be by itself is named."""
    from cl_cnaps.records.record import record_folders
    from cl_cnaps.report.view import draw_records

    def draw(some: tuple[Path, ...], folder: Path | None) -> list[Path]:
        if kind is None:
            return draw_records(some, folder, formats=formats)
        return _draw_streams(some, folder, kind, formats)

    try:
        return draw(records, out)
    except (ClCnapsError, OSError):
        raise
    except Exception as error:  # a record may have any form
        with tempfile.TemporaryDirectory() as folder:
            for record in (one for path in records for one in record_folders(path)):
                with foreign(str(record), "the record cannot be drawn"):
                    draw((record,), Path(folder))
        raise BadInputError(
            f"{', '.join(map(str, records))}: cannot be drawn together ({reason(error)})"
        ) from error


def _draw_streams(
    records: tuple[Path, ...], out: Path | None, kind: str, formats: tuple[str, ...]
) -> list[Path]:
    """Streams alone, of which there must be some."""
    from cl_cnaps.report.plots.streams import KINDS, stream_figures
    from cl_cnaps.report.plots.style import draw
    from cl_cnaps.report.stream import StreamView

    streams = StreamView.under(records)
    folder = out or (streams[0].path / "figures" if len(streams) == 1 else Path("figures"))
    return draw(stream_figures(streams, KINDS if kind == "all" else (kind,)), folder, formats)
