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
from typing import Any

from matplotlib.figure import Figure

from cl_cnaps.data.atomic import write_bytes
from cl_cnaps.names import PAPER_BENCHMARKS
from cl_cnaps.records.record import Record, records_under
from cl_cnaps.report.active import ActiveView
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.active import curve_figure
from cl_cnaps.report.plots.few_shot import histogram_figure
from cl_cnaps.report.plots.panels import bar_figure, panels_of
from cl_cnaps.report.plots.sizes import sizes_figure
from cl_cnaps.report.plots.streams import models_figure
from cl_cnaps.report.stream import StreamView

MANIFEST = "figures.json"
_ACTIVE = ("cifar10", "omniglot")


@dataclass(frozen=True)
class Shown:
    """A figure: the configurations of the records that it shows, and how it is made of them."""

    verb: str
    config: Mapping[str, Any]
    make: Callable[..., Figure]
    """Of the records, then of the files beside them."""
    beside: tuple[str, ...] = ()
    """Names of files in the results folder that it shows too."""

    def shows(self, record: Record) -> bool:
        """Whether a record is of this figure."""
        return record.verb == self.verb and all(
            _is_one_of(record.config[key], wanted) for key, wanted in self.config.items()
        )


def _is_one_of(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or one of several; of a record's several, one must be the wanted one."""
    if isinstance(value, list):
        return wanted in value
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _models(records: Sequence[Record]) -> Figure:
    return models_figure([StreamView(record) for record in records])


def _bars(records: Sequence[Record]) -> Figure:
    return bar_figure([panel for record in records for panel in panels_of(StreamView(record))])


def _tasks(records: Sequence[Record]) -> Figure:
    return histogram_figure(FewShotView(records[0]))


def _curves(records: Sequence[Record]) -> Figure:
    return curve_figure([row for record in records for row in ActiveView(record).rows])


_FROZEN = {"target": "meta-dataset", "model": "simple", "adaptation": "none"}
"""The tasks are everyone's; this model has been given all 600."""
FIGURES: Mapping[str, Shown] = {
    "continual/models.png": Shown("stream", {"benchmark": list(PAPER_BENCHMARKS)}, _models),
    **{
        f"{name}/bars.png": Shown(
            "stream", {"benchmark": name, "model": "simple", "adaptation": "film"}, _bars
        )
        for name in PAPER_BENCHMARKS
    },
    "meta-dataset/tasks.png": Shown("evaluate", _FROZEN, _tasks),
    **{f"active-{name}/curves.png": Shown("active", {"source": name}, _curves) for name in _ACTIVE},
    "image-size/sizes.png": Shown(
        "speed", {"benchmarks": "embed", "quick": False}, sizes_figure, ("validation.csv",)
    ),
}
"""Below `figures/` of the results folder."""


def drawn_from(results: Path) -> dict[str, dict[str, str]]:
    """Return for each figure the records that it shows, with a digest of the numbers of each."""
    every = list(records_under(results))
    return {
        name: {
            **{record.path.relative_to(results).as_posix(): _digest(record) for record in shown},
            **{file: _digest_of([results / file]) for file in figure.beside if shown},
        }
        for name, figure in FIGURES.items()
        for shown in [_shown(figure, results, every)]
    }


def _shown(figure: Shown, results: Path, records: Sequence[Record]) -> list[Record]:
    """Return the records of a figure; none where a file that it shows too is not there."""
    if not all((results / file).is_file() for file in figure.beside):
        return []
    return sorted(filter(figure.shows, records), key=lambda record: str(record.path))


def _digest(record: Record) -> str:
    return _digest_of(sorted(record.path.glob("*.csv")))


def _digest_of(tables: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for table in tables:
        digest.update(table.read_bytes())
    return digest.hexdigest()[:16]


def draw_all(results: Path) -> list[Path]:
    """Draw every figure that there are records for, and say in the manifest which those were."""
    every = list(records_under(results))
    paths = []
    for name, figure in FIGURES.items():
        if records := _shown(figure, results, every):
            path, beside = results / "figures" / name, [results / file for file in figure.beside]
            paths += style.draw(
                ((path.stem, make(records, *beside)) for make in [figure.make]), path.parent, ["png"]
            )
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
