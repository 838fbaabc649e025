"""Fill the generated parts of Markdown files from the records in a results folder.

    python -m cl_cnaps.commands.pages results README.md docs/*.md results/README.md [--check]

With --check nothing is written, and a file that is out of date is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from cl_cnaps.commands.record_list import record_list
from cl_cnaps.data.atomic import write_bytes
from cl_cnaps.report.generated import TABLES, filled

PARTS: Mapping[str, Callable[[Path], str]] = {**TABLES, "record-list": record_list}


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date; write nothing")
    arguments = parser.parse_args()
    for file in arguments.files:
        before = file.read_text(encoding="utf-8")
        after = filled(before, arguments.results, PARTS)
        if before != after and arguments.check:
            raise SystemExit(f"{file} is out of date: run python -m cl_cnaps.commands.pages")
        if before != after:
            write_bytes(file, after.encode())


if __name__ == "__main__":
    main()
