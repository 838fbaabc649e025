"""The figures that the README and the pages show, drawn from the records in a results folder.

    python -m cl_cnaps.report.figures results [--check]

`figures/figures.json` keeps, for each figure, the records it was drawn from and digests of their numbers. With --check
nothing is drawn, and a figure whose records are others by now is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_cnaps.data.atomic import write_bytes
from cl_cnaps.names import PAPER_BENCHMARKS
from cl_cnaps.records.record import Record, records_under
from cl_cnaps.report.active import ActiveView
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.stream import StreamView

MANIFEST = "figures.json"
_ACTIVE = ("cifar10", "omniglot")


@dataclass(frozen=True)
class Shown:
    """A figure: which records it shows, and how they are drawn into a folder."""

    shows: Callable[[Record], bool]
    draw: Callable[[Sequence[Record], Path], object]


def _bars(records: Sequence[Record], folder: Path) -> None:
    from cl_cnaps.report.plots.streams import draw_streams

    streams = [StreamView(record) for record in records]
    draw_streams(streams, folder, kinds=("bars",), formats=("png",))


def _models(records: Sequence[Record], folder: Path) -> None:
    from cl_cnaps.report.plots.streams import draw_models

    draw_models([StreamView(record) for record in records], folder, formats=("png",))


def _curves(records: Sequence[Record], folder: Path) -> None:
    from cl_cnaps.report.plots.active import draw_active

    draw_active([ActiveView(record) for record in records], folder, formats=("png",))


def _shapes_of_tasks(records: Sequence[Record], folder: Path) -> None:
    from cl_cnaps.report.plots.few_shot import draw_shapes_of_tasks

    draw_shapes_of_tasks(FewShotView(records[0]), folder, formats=("png",))


def _stream(benchmark: str) -> Callable[[Record], bool]:
    def shows(record: Record) -> bool:
        config = record.config
        adapted = record.verb == "stream" and config["adaptation"] == "film"
        return adapted and (config["benchmark"], config["model"]) == (benchmark, "simple")

    return shows


def _of_the_paper(record: Record) -> bool:
    return record.verb == "stream" and record.config["benchmark"] in PAPER_BENCHMARKS


def _frozen_on_meta_dataset(record: Record) -> bool:
    """The tasks are everyone's; this model has been given all 600."""
    config = record.config
    return record.verb == "evaluate" and (config["target"], config["model"], config["adaptation"]) == (
        "meta-dataset",
        "simple",
        "none",
    )


def _active(source: str) -> Callable[[Record], bool]:
    return lambda record: record.verb == "active" and record.config["source"] == source


FIGURES: Mapping[str, Shown] = {
    "continual/models.png": Shown(_of_the_paper, _models),
    **{f"{name}/bars.png": Shown(_stream(name), _bars) for name in PAPER_BENCHMARKS},
    "meta-dataset/tasks.png": Shown(_frozen_on_meta_dataset, _shapes_of_tasks),
    **{f"active-{name}/curves.png": Shown(_active(name), _curves) for name in _ACTIVE},
}
"""Below `figures/` of the results folder."""


def drawn_from(results: Path) -> dict[str, dict[str, str]]:
    """For each figure the records that it shows, and a digest of the numbers of each."""
    every = list(records_under(results))
    return {
        name: {
            record.path.relative_to(results).as_posix(): _digest(record) for record in _shown(figure, every)
        }
        for name, figure in FIGURES.items()
    }


def _shown(figure: Shown, records: Sequence[Record]) -> list[Record]:
    return sorted(filter(figure.shows, records), key=lambda record: str(record.path))


def _digest(record: Record) -> str:
    digest = hashlib.sha256()
    for table in sorted(record.path.glob("*.csv")):
        digest.update(table.read_bytes())
    return digest.hexdigest()[:16]


def draw_all(results: Path) -> list[Path]:
    """Draw every figure that there are records for, and say in the manifest which those were."""
    every = list(records_under(results))
    paths = []
    for name, figure in FIGURES.items():
        if records := _shown(figure, every):
            path = results / "figures" / name
            figure.draw(records, path.parent)
            paths.append(path)
    manifest = results / "figures" / MANIFEST
    write_bytes(manifest, (json.dumps(drawn_from(results), indent=1) + "\n").encode())
    return [*paths, manifest]


def stale(results: Path) -> list[str]:
    """Figures that are not there, or were drawn from other records or numbers."""
    manifest = results / "figures" / MANIFEST
    before = json.loads(manifest.read_text()) if manifest.is_file() else {}
    return [
        name
        for name, records in drawn_from(results).items()
        if before.get(name, {}) != records or bool(records) != (results / "figures" / name).is_file()
    ]


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a figure is out of date; draw nothing")
    arguments = parser.parse_args()
    if not arguments.check:
        for path in draw_all(arguments.results):
            print(path)
    elif old := stale(arguments.results):
        raise SystemExit(f"out of date: {', '.join(old)}: run python -m cl_cnaps.report.figures")


if __name__ == "__main__":
    main()
