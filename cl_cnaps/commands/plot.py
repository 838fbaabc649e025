"""`cl-cnaps plot`: charts from the records of streams."""

from __future__ import annotations

from pathlib import Path

import click


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
    type=click.Choice(["bars", "steps", "heatmap", "all"]),
    default="all",
    show_default=True,
    help="bars: after every step, one bar per task seen (the paper's chart). steps: mean over the tasks seen "
    "against step, a line per model and encoding. heatmap: task against step.",
)
@click.option(
    "--format", "formats", default="png,svg", show_default=True, help="png, svg, or both with a comma."
)
def plot(records: tuple[Path, ...], out: Path | None, kind: str, formats: str) -> None:
    """Draw streams from their records.

    A RECORD is a folder that `cl-cnaps stream` wrote, or any folder above some. Several are drawn together:
    those that differ in encoding only make a grid of bar charts, those of one benchmark a figure of lines.
    """
    from cl_cnaps.results.plots import KINDS, draw_streams
    from cl_cnaps.results.streams import stream_records

    streams = stream_records(records)
    folder = out or (streams[0].path / "figures" if len(streams) == 1 else Path("figures"))
    kinds = KINDS if kind == "all" else (kind,)
    wanted = tuple(dict.fromkeys(part.strip() for part in formats.split(",")))
    for path in draw_streams(streams, folder, kinds=kinds, formats=wanted):
        click.echo(path)
