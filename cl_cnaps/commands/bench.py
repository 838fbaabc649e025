"""`cl-cnaps bench`: run the speed benchmarks of a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import cl_cnaps
from cl_cnaps.commands import options


@click.command()
@click.option("--only", metavar="NAME", multiple=True, help="This benchmark; may be given again.")
@click.option("--quick", is_flag=True, help="Small cases, in a minute or two: to see that all of it works.")
@click.option(
    "--threads", type=click.IntRange(1, 1000), default=2, show_default=True, help="Threads PyTorch uses."
)
@options.out
@options.as_json
@options.quiet
def bench(only: tuple[str, ...], quick: bool, threads: int, out: Path, as_json: bool, quiet: bool) -> None:
    """Measure speed against plain ways of doing the same.

    Every number is a ratio to the textbook way of doing the same work, timed in turns in one run. The whole suite
    takes three quarters of an hour on two cores; let nothing else run meanwhile. The benchmarks are in benchmarks/speed
    of a checkout (`pip install -e .`); they are not part of the installed package.

    \b
    Examples:
      cl-cnaps bench --quick
      cl-cnaps bench --only head --only embed
      cl-cnaps bench --out results
    """
    root = Path(cl_cnaps.__file__).parents[1]
    if not (root / "benchmarks" / "speed").is_dir():
        raise click.ClickException(
            f"there is no benchmarks/speed beside {Path(cl_cnaps.__file__).parent}: run `cl-cnaps bench` from a "
            "checkout of cl-cnaps that is installed with `pip install -e .`"
        )
    sys.path.insert(0, str(root))
    from benchmarks.speed.suite import bench as run

    run(only, quick=quick, threads=threads, out=out, as_json=as_json, quiet=quiet)
