"""`cl-cnaps report`: a site of static pages from run records."""

from __future__ import annotations

from pathlib import Path

import click

from cl_cnaps.commands.display import echo

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
def report(paths: tuple[Path, ...], out: Path, show: bool) -> None:
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
    from cl_cnaps.errors import MissingDataError
    from cl_cnaps.records.record import record_folders
    from cl_cnaps.report.site import gather, showable, write_site

    sources = paths or tuple(path for path in map(Path, _USUAL) if any(record_folders(path)))
    if not sources:
        raise MissingDataError(
            "neither results/ nor runs/ here holds a record; name a folder of records, or make one with "
            "`cl-cnaps stream`"
        )
    found = showable(gather(sources))
    for one in found.unreadable:
        echo(f"not read: {one.path}: {one.reason}", err=True)
    front = write_site(found, out)
    echo(f"records:  {len(found.records)}")
    echo(f"site:     {front}")
    if show:
        import webbrowser

        if not webbrowser.open(front.as_uri()):
            echo("no web browser was found; open the file above in one", err=True)
