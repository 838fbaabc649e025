"""One benchmark as a script: `python benchmarks/speed/NAME.py`, or `python -m benchmarks.speed.script NAME`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator

from benchmarks.speed.figures import Figure
from benchmarks.speed.machine import load, warnings_about
from cl_cnaps.torch_setup import set_up_torch

NAMES = (
    "head",
    "classes",
    "embed",
    "compiled",
    "stream",
    "slda",
    "loading",
    "growth",
    "start",
    "evaluate",
    "metatrain",
    "report",
    "cluster",
    "scaling",
    "profile",
)
"""Each is a module of this package with a function `measure`."""


def measured(name: str, *, quick: bool, threads: int) -> Iterator[Figure]:
    """The figures of one benchmark as they come, with PyTorch set as the commands set it."""
    set_up_torch(threads)
    yield from importlib.import_module(f"benchmarks.speed.{name}").measure(quick)


def line(figure: Figure) -> str:
    """A figure for a person."""
    bar = ""
    if figure.bar is not None:
        bar = f"   ({'at least' if figure.at_least else 'at most'} {figure.bar:g}: {'met' if figure.met else 'MISSED'})"
    return f"{figure.what}: {figure.value:g} {figure.unit}{bar}"


def main(name: str | None = None) -> None:
    """Parse, measure, print."""
    described = importlib.import_module(f"benchmarks.speed.{name}").__doc__ if name else __doc__
    parser = argparse.ArgumentParser(
        description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if name is None:
        parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--quick", action="store_true", help="small cases, to see that it works")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for sentence in warnings_about(load()):
        print(f"warning: {sentence}", file=sys.stderr)
    for figure in measured(name or arguments.name, quick=arguments.quick, threads=arguments.threads):
        print(json.dumps(figure.as_json()) if arguments.json else line(figure), flush=True)


if __name__ == "__main__":
    main()
