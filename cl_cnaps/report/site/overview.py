"""The front page: what learns best, by how much and on what; models against the paper; what is missing, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cl_cnaps.report.few_shot import FewShotView, data_set_words, seen
from cl_cnaps.report.findings import Evidence, findings
from cl_cnaps.report.labels import count, paper_cell, percent
from cl_cnaps.report.site.active import active_method, active_task, ordered_curves
from cl_cnaps.report.site.coverage import TARGETS
from cl_cnaps.report.site.few_shot import evaluation_order
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.standings import caveats, short_standings, standings_table, verdicts
from cl_cnaps.report.table import signed

_SEEN = "* Classes that backbone or adaptation were trained on: not to be compared with the paper."

_OTHER = (
    "The paper's few-shot models are ResNet-18s meta-trained on the benchmark; another backbone or other weights, as "
    "records name them, are not the same experiment."
)


@dataclass(frozen=True)
class Tile:
    """One result in a few words: where, the number, what gave it, and what stands beside it."""

    section: str
    href: str
    title: str
    number: str
    """In per cent."""
    link: str | None
    model: str
    beside: Sequence[str] = ()


def overview_page(found: Gathered) -> Page:
    """The front page."""
    table = standings_table("front", "Final average accuracy, %", short_standings(found.streams))
    records = list(found.records.values())
    tiles = [*_stream_tiles(found), *_few_shot_tiles(found), *_active_tiles(found)]
    return Page(
        "index.html",
        "Results",
        template="overview.html",
        content={
            "tiles": tiles,
            "table": table if found.streams else None,
            "caveats": caveats(found.streams),
            "seen": _few_shot_caveats(tiles),
            "findings": [
                one.text for one in findings(Evidence(found.streams, found.ablations)) if one.name != "best"
            ],
            "experiments": found.experiments,
            "complete": sum(one.complete for one in found.experiments),
            "records": count(len(records), "record"),
            "newest": max((str(one.environment.get("finished", "")) for one in records), default="")[:10],
            "unreadable": len(found.unreadable),
        },
    )


def _few_shot_caveats(tiles: Sequence[Tile]) -> list[str]:
    """What must be known before a few-shot number is compared with the paper's."""
    cited = any(line.startswith("paper ") for tile in tiles for line in tile.beside)
    return [_SEEN] * any("*" in tile.title for tile in tiles) + [_OTHER] * cited


def _stream_tiles(found: Gathered) -> list[Tile]:
    """What learns best on each of the paper's benchmarks, with a single head."""
    tiles = []
    overlap = any("overlap" in note for note in caveats(found.streams))
    for one in verdicts(found.streams):
        beside = []
        if one.rival is not None:
            beside.append(f"best rival {percent(one.rival[1])} ({one.rival[0]})")
        if one.paper is not None:
            mark = "†" if overlap else ""
            beside.append(f"paper's best {100 * one.paper[1]:.1f}{mark} ({one.paper[0]})")
        title = f"Split {one.title}, single head"
        tiles.append(
            Tile("Continual", "continual.html", title, one.number, one.href, one.label, tuple(beside))
        )
    return tiles


def _few_shot_tiles(found: Gathered) -> list[Tile]:
    """The best model on each few-shot benchmark: on average where it has one, else on its first tasks."""
    tiles = []
    for target, title in TARGETS.items():
        views = [one for one in found.few_shot if one.rows[0]["target"] == target]
        views.sort(key=evaluation_order)
        if not views:
            continue
        best = max(views, key=_score)
        row, mean = best.rows[0], best.averages.get("all")
        model = active_method(row)
        if mean is None:
            name = f"{data_set_words(row)}, {row['shape']}"
            number = percent(row["accuracy"]["mean"], row["accuracy"]["ci95"])
            beside = [f"paper {paper_cell(row['paper'])}"] if row["paper"] else []
        else:
            mark = "*" if any(map(seen, best.rows)) else ""
            name = f"{title}{mark}, mean of {count(len(mean['data_sets']), 'data set')}"
            number = percent(mean["accuracy"])
            beside = [] if mean["paper"] is None else [f"paper {mean['paper']:.1f}, the same data sets"]
        beside.append(f"best of {count(len(views), 'record')}, {count(row['tasks'], 'task')} each")
        tiles.append(Tile("Few-shot", "few-shot.html", name, number, best.href, model, tuple(beside)))
    return tiles


def _score(view: FewShotView) -> float:
    mean = view.averages.get("all")
    return float(view.rows[0]["accuracy"]["mean"] if mean is None else mean["accuracy"])


def _active_tiles(found: Gathered) -> list[Tile]:
    """The strategy that gains most over random on the first task."""
    gains = [(view, row) for view, row in ordered_curves(found) if row["gain"]]
    if not gains:
        return []
    task = active_task(gains[0][1])
    view, row = max(
        (one for one in gains if active_task(one[1]) == task), key=lambda one: one[1]["gain"]["mean"]
    )
    gain = f"{signed(row['gain']['mean'], row['gain']['ci95']).text} points over labels taken at random"
    last = percent(row["accuracy"]["mean"][-1], row["accuracy"]["ci95"][-1])
    title = f"{task}, {row['labels'][-1]} labels by {row['strategy']}"
    return [Tile("Active", "active.html", title, last, view.href, active_method(row), (f"area {gain}",))]
