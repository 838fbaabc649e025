"""Made-up records of every kind a report has a section for; streams come from `stream_examples`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from report.editing import editable

from cl_cnaps.active.plan import SHORT, Protocol
from cl_cnaps.few_shot.ablations import ABLATIONS, QUERIES
from cl_cnaps.names import STRATEGIES
from cl_cnaps.records.record import Record, write_record

HOSTILE = '</script><script>window.broken = 1</script><b title="\'">&amp;'
"""Text that breaks out of a page wherever it is not escaped."""

ENVIRONMENT = {
    "finished": "2026-11-16T12:00:00+00:00",
    "command": "cl-cnaps made-up --name 'a & b'",
    "code": {"version": "0.1.0", "commit": "0123456789abcdef", "dirty": False},
}

QUERY_TASKS = {
    "data_set": "mini-imagenet",
    "title": "mini-ImageNet",
    "domain": None,
    "shape": "5-way 1-shot",
    "paper": None,
}


def entry(**changes: Any) -> dict[str, Any]:
    plain = {
        "target": "mini-imagenet",
        "data_set": "mini-imagenet",
        "title": "mini-ImageNet",
        "domain": None,
        "stand_in": None,
        "model": "simple",
        "backbone": "tiny",
        "adaptation": "none",
        "responsibilities": "auto",
        "shape": "5-way 1-shot",
        "queries": 10,
        "tasks": 600,
        "accuracy": {"mean": 0.612, "ci95": 0.009},
        "test_classes": "all 20 classes",
        "data_source": "made up",
        "backbone_pretraining": "none",
        "seen_in_pretraining": "nothing",
        "classes_seen_in_pretraining": False,
        "seen_in_training": "not known",
        "classes_seen_in_training": False,
        "paper": {"mean": 53.2, "interval": 0.9, "unit": "percent", "label": "tab:some"},
        "paper_imagenet": None,
    }
    return plain | changes


def few_shot(out: Path, entries: list[dict[str, Any]], missing: list[Any] | None = None) -> Record:
    first = entries[0]
    config = {"target": first["target"], "model": first["model"], "adaptation": first["adaptation"]}
    name = f"{first['target']}-{first['model']}"
    summary = {"verb": "evaluate", "name": name, "rows": entries}
    episodes = [{"data_set": first["data_set"], "episode": i, "accuracy": 0.5} for i in range(300)]
    return _write(out, "evaluate", name, config, summary | {"missing": missing or []}, {"episodes": episodes})


def active(
    out: Path,
    model: str = "simple",
    source: str = "cifar10",
    *,
    adaptation: str = "none",
    protocol: Protocol = SHORT["cifar10"],
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Record:
    labels = [50, 75, 100]
    curves = []
    for strategy in strategies:
        rise = {"random": 0.05, "entropy": 0.08}.get(strategy, 0.07)
        mean = [0.6 + rise * point for point in range(len(labels))]
        curves.append(
            {
                "source": source,
                "alphabet": None,
                "model": model,
                "adaptation": adaptation,
                "strategy": strategy,
                "labels": labels,
                "accuracy": {"mean": mean, "ci95": [0.01] * len(labels)},
                "area": mean[1],
                "area_ci95": 0.01,
                "gain": None if strategy == "random" else {"mean": mean[1] - 0.65, "ci95": 0.005},
                "runs": 10,
                "test_classes": "all ten",
                "data_source": "made up",
                "seen_in_pretraining": "nothing",
            }
        )
    config = {"source": source, "model": model, "adaptation": adaptation, "protocol": asdict(protocol)}
    summary = {"verb": "active", "name": f"{source}-{model}", "rows": curves}
    rows = [{"run": 0, "labels": 50, "accuracy": 0.6}]
    return _write(out, "active", f"{source}-{model}", config, summary, {"curves": rows})


def ablation(
    out: Path,
    which: str = "metric",
    rows: Collection[str] | None = None,
    title: str = "ImageNet",
    more: Sequence[str] = (),
) -> Record:
    """An ablation with all its rows, or some; one data set, but for `queries` 5-way 1-shot tasks of mini-ImageNet.

    `more` are the titles of further data sets.
    """
    titles = {"ilsvrc_2012": title} | {name.lower(): name for name in more}
    found, recall = [], []
    methods = [method for method in ABLATIONS[which] if rows is None or method.key in rows]
    for place, method in enumerate(methods):
        mean = 0.5 + place / 100
        cited = None if place else {"mean": 51.3, "interval": 1.1, "label": "tab:some"}
        plain = entry(data_set="ilsvrc_2012", title=title, domain="in", shape="variable", paper=cited)
        shapes = [{"queries": queries, **QUERY_TASKS} for queries in QUERIES] if which == "queries" else [{}]
        if more:
            shapes = [{"data_set": name, "title": words} for name, words in titles.items()]
        results = [
            plain | {"accuracy": {"mean": mean + i / 1000, "ci95": 0.01}} | shape
            for i, shape in enumerate(shapes)
        ]
        average = {"accuracy": mean, "paper": cited and cited["mean"], "data_sets": ["ilsvrc_2012"]}
        found.append(
            {
                "row": method.key,
                "title": method.title,
                "backbone": "tiny",
                "adaptation": "none",
                "weights_source": f"weights of {method.model}",
                "results": results,
                "averages": {} if which == "queries" else {"in": average, "all": average},
            }
        )
        recall += [
            {"row": method.key, "shots": shots, "classes": 100, "recall": mean + shots / 100, "std": 0.1}
            for shots in (1, 2, 6, 7)
        ]
    summary = {"verb": "ablate", "name": which, "rows": found, "missing": [{"title": "Fungi"}]}
    episodes = [
        {"row": row["row"], "data_set": name, "episode": i, "accuracy": 0.5 + place / 100 + i * place / 1000}
        for place, row in enumerate(found)
        for name in titles
        for i in range(2)
    ]
    tables = {"episodes": episodes} | ({"recall": recall} if which == "shots" else {})
    if which == "adaptation":
        tables |= _encoded(list(titles))
    return _write(out, "ablate", which, {"which": which, "title": title}, summary, tables)


def _encoded(names: Sequence[str]) -> dict[str, Any]:
    """Encodings of tasks that lie around a point for each data set, and distances between neighbours of 0.01."""
    draw = np.random.default_rng(0)
    centres = 3 * draw.standard_normal((len(names), 64))
    encodings = [
        {"data_set": name, "episode": i}
        | {f"e{n}": x for n, x in enumerate(centre + draw.standard_normal(64))}
        for name, centre in zip(names, centres, strict=True)
        for i in range(20)
    ]
    places = {name: 0.01 * place for place, name in enumerate(names)} | {"identity": 0.1}
    distances = [
        {"first": one, "second": other, "distance": abs(places[one] - places[other])}
        for one, other in combinations(places, 2)
    ]
    return {"encodings": encodings, "film_distances": distances}


def _write(
    out: Path, verb: str, name: str, config: dict[str, Any], summary: dict[str, Any], tables: dict[str, Any]
) -> Record:
    record = write_record(out, verb, name, config, environment=ENVIRONMENT, tables=tables, summary=summary)
    return editable(record)
