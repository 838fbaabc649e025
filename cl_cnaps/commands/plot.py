"""`cl-cnaps plot`: charts from the records of other commands."""

from __future__ import annotations

from pathlib import Path

import click

from cl_cnaps.commands.display import echo


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
def plot(records: tuple[Path, ...], out: Path | None, kind: str | None, formats: str) -> None:
    """Draw records: what `stream`, `evaluate`, `active` and `ablate` wrote.

    A RECORD is a folder that one of these commands wrote, or any folder above some. Several are drawn together, those
    of one command at a time:

    \b
    stream    those that differ in encoding only make a grid of bar charts,
              those of one benchmark a figure of lines
    evaluate  class recall against shots, a line for each record; the ways and
              shots of tasks; accuracy against queries, where they were varied
    active    accuracy against labels, a figure for each source
    ablate    refinement: the grid; shots: class recall; queries: accuracy
              against queries; the others are tables and have no chart

    Records of several commands are drawn into a folder for each command.

    \b
      cl-cnaps plot runs/stream --kind bars
      cl-cnaps plot runs/evaluate
      cl-cnaps plot results/active --out results/figures/active --format png
    """
    wanted = tuple(dict.fromkeys(part.strip() for part in formats.split(",")))
    for path in (
        _draw_all(records, out, wanted) if kind is None else _draw_streams(records, out, kind, wanted)
    ):
        echo(path)


def _draw_all(records: tuple[Path, ...], out: Path | None, formats: tuple[str, ...]) -> list[Path]:
    from cl_cnaps.report.view import draw_records

    return draw_records(records, out, formats=formats)


def _draw_streams(
    records: tuple[Path, ...], out: Path | None, kind: str, formats: tuple[str, ...]
) -> list[Path]:
    """Streams alone, of which there must be some."""
    from cl_cnaps.report.plots.streams import KINDS, draw_streams
    from cl_cnaps.report.stream import StreamView

    streams = StreamView.under(records)
    folder = out or (streams[0].path / "figures" if len(streams) == 1 else Path("figures"))
    return draw_streams(streams, folder, kinds=KINDS if kind == "all" else (kind,), formats=formats)
