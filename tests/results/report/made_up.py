"""Made-up records of every kind a report has a section for; streams come from `stream_examples`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cl_cnaps.results.few_shot_averages import averages
from cl_cnaps.results.record import Record, write_record

HOSTILE = '</script><script>window.broken = 1</script><b title="\'">&amp;'
"""Text that breaks out of a page wherever it is not escaped."""

ENVIRONMENT = {
    "finished": "2026-11-16T12:00:00+00:00",
    "command": "cl-cnaps made-up --name 'a & b'",
    "code": {"version": "0.1.0", "commit": "0123456789abcdef", "dirty": False},
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
        "shape": "5-way 1-shot",
        "queries": 10,
        "tasks": 600,
        "accuracy": {"mean": 0.612, "ci95": 0.009},
        "test_classes": "all 20 classes",
        "data_source": "made up",
        "backbone_pretraining": "none",
        "seen_in_pretraining": "nothing",
        "classes_seen_in_pretraining": False,
        "paper": {"mean": 53.2, "interval": 0.9, "unit": "percent", "label": "tab:some"},
        "paper_imagenet": None,
    }
    return plain | changes


def few_shot(out: Path, entries: list[dict[str, Any]], missing: list[Any] | None = None) -> Record:
    first = entries[0]
    config = {"target": first["target"], "model": first["model"], "adaptation": first["adaptation"]}
    name = f"{first['target']}-{first['model']}"
    summary = {"verb": "evaluate", "name": name, "results": entries, "averages": averages(entries)}
    episodes = [{"data_set": first["data_set"], "episode": i, "accuracy": 0.5} for i in range(300)]
    return _write(out, "evaluate", name, config, summary | {"missing": missing or []}, {"episodes": episodes})


def active(out: Path, model: str = "simple", source: str = "cifar10") -> Record:
    labels = [50, 75, 100]
    curves = []
    for strategy, rise in (("random", 0.05), ("entropy", 0.08), ("variation-ratio", 0.07)):
        mean = [0.6 + rise * point for point in range(len(labels))]
        curves.append(
            {
                "source": source,
                "alphabet": None,
                "model": model,
                "adaptation": "none",
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
    config = {"source": source, "model": model, "adaptation": "none"}
    summary = {"verb": "active", "name": f"{source}-{model}", "results": curves}
    rows = [{"run": 0, "labels": 50, "accuracy": 0.6}]
    return _write(out, "active", f"{source}-{model}", config, summary, {"curves": rows})


def ablation(out: Path, which: str = "metric") -> Record:
    rows = []
    for title, accuracy, paper in (("Cosine Similarity", 0.5, 51.3), ("Squared Mahalanobis", 0.58, None)):
        cited = None if paper is None else {"mean": paper, "interval": 1.1, "label": "tab:metric"}
        result = entry(
            data_set="ilsvrc_2012", title="ImageNet", domain="in", shape="variable", paper=cited
        ) | {"accuracy": {"mean": accuracy, "ci95": 0.01}}
        rows.append(
            {
                "title": title,
                "backbone": "tiny",
                "adaptation": "none",
                "results": [result],
                "averages": {"in": {"accuracy": accuracy, "paper": paper, "data_sets": ["ilsvrc_2012"]}},
            }
        )
    summary = {"verb": "ablate", "name": which, "rows": rows, "missing": [{"title": "Fungi"}]}
    return _write(out, "ablate", which, {"which": which}, summary, {"episodes": [{"accuracy": 0.5}]})


def _write(
    out: Path, verb: str, name: str, config: dict[str, Any], summary: dict[str, Any], tables: dict[str, Any]
) -> Record:
    return write_record(out, verb, name, config, environment=ENVIRONMENT, tables=tables, summary=summary)
