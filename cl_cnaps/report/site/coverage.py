"""Which of the paper's experiments are there, which only in part, and the commands that make what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from cl_cnaps.active.plan import FIGURE_ALPHABETS, PAPER
from cl_cnaps.few_shot.ablations import left_out
from cl_cnaps.few_shot.targets import COLUMNS, META_DATASET
from cl_cnaps.names import ABLATIONS, CNAPS_MODELS, ENCODINGS, FEATURES, HEADS, PAPER_BENCHMARKS, STRATEGIES
from cl_cnaps.report.labels import count, is_plain, model_name, row_name
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.standings import PAPER_SHOTS
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.view import Row

if TYPE_CHECKING:
    from cl_cnaps.report.site.gather import Gathered

TARGETS = {
    "meta-dataset": "Meta-Dataset",
    "mini-imagenet": "mini-ImageNet",
    "tiered-imagenet": "tiered-ImageNet",
}
"""The paper's few-shot benchmarks, in its order."""
ACTIVE_SOURCES = {"cifar10": "CIFAR-10", "omniglot": "Omniglot"}
"""What `fig:active-learning-figure` is of, as the paper writes it."""
ACTIVE_MODELS = ("simple", "transductive")
_FROZEN = "frozen features"
_NAMED = 6
"""Most rows of an ablation that are named one by one."""


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments: what of it is there, and what is not with the command that makes it."""

    section: str
    title: str
    href: str
    there: Sequence[str]
    missing: Sequence[tuple[str, str]]
    """What, and the command; without one it takes more than a command."""

    @property
    def commands(self) -> list[str]:
        """The commands that make what is missing, each once."""
        return list(dict.fromkeys(command for _, command in self.missing if command))

    @property
    def complete(self) -> bool:
        """Whether nothing of it is missing."""
        return not self.missing


def coverage(found: Gathered) -> list[Experiment]:
    """The paper's experiments in its order."""
    return [
        *(_continual(found, benchmark, title) for benchmark, title in PAPER_BENCHMARKS.items()),
        *(_few_shot(found, target, title) for target, title in TARGETS.items()),
        _imagenet_only(found),
        _active(found),
        _ablations(found),
    ]


def _continual(found: Gathered, benchmark: str, title: str) -> Experiment:
    """CNAPS models by encoding with adapted features; the paper's baselines on a small network, as there."""
    streams: list[StreamView] = [one for one in found.streams if one.rows[0]["benchmark"] == benchmark]
    counted = [one.rows[0] for one in streams if _as_in_the_paper(one.rows)]
    adapted = {(s["model"], s["encoding"]) for s in counted if s["adaptation"] != "none"}
    frozen = {s["model"] for s in counted if s["encoding"] is not None and s["adaptation"] == "none"}
    missing: list[tuple[str, str]] = []
    there = []
    for model in CNAPS_MODELS:
        done = [encoding for encoding in ENCODINGS if (model, encoding) in adapted]
        command = f"cl-cnaps stream --benchmark {benchmark} --model {model} --adaptation film --encoding"
        if not done:
            missing.append((f"{model_name(model)} in every encoding", f"{command} all"))
        else:
            missing += [
                (row_name({"model": model, "encoding": one, "adaptation": "film"}), f"{command} {one}")
                for one in ENCODINGS
                if one not in done
            ]
        if kinds := [*done, *([_FROZEN] if model in frozen else [])]:
            there.append(f"{model_name(model)} ({', '.join(kinds)})")
    cited = dict.fromkeys(f.model for f in paper_figures() if f.encoding is None and f.benchmark == benchmark)
    trained = {s["model"] for s in counted if s["encoding"] is None and s["backbone"] == "none"}
    missing += [
        (model_name(model), f"cl-cnaps stream --benchmark {benchmark} --model {model} --baseline-on network")
        for model in cited
        if model not in trained
    ]
    if baselines := {s["model"] for s in counted if s["encoding"] is None}:
        there.append(count(len(baselines), "baseline"))
    if other := len(streams) - len(counted):
        there.append(f"{count(other, 'stream')} in other settings")
    return Experiment("Continual", f"Split {title}", "continual.html", there, missing)


def _as_in_the_paper(heads: Sequence[Row]) -> bool:
    """Whether a stream is of a model itself, with the paper's shots and with both heads."""
    plain = all(is_plain(summary) and summary["shots"] == PAPER_SHOTS for summary in heads)
    return plain and {summary["head"] for summary in heads}.issuperset(HEADS)


def _few_shot(found: Gathered, target: str, title: str) -> Experiment:
    records = [
        record
        for record in found.few_shot
        if record.rows[0]["target"] == target and not _of_imagenet_alone(record.rows)
    ]
    plain = [record.rows[0] for record in records if is_plain(record.rows[0])]
    adapted = {entry["model"] for entry in plain if entry["adaptation"] != "none"}
    frozen = {entry["model"] for entry in plain if entry["adaptation"] == "none"}
    there = [
        model_name(model) + ("" if model in adapted else f" ({_FROZEN})")
        for model in CNAPS_MODELS
        if model in adapted | frozen
    ]
    missing = [
        (model_name(model), evaluate_command(target, model)) for model in CNAPS_MODELS if model not in adapted
    ]
    missing += _data_sets(
        (one["title"] for record in records for one in record.missing),
        (entry["title"] for record in records for entry in record.rows),
    )
    return Experiment("Few-shot", title, "few-shot.html", there, missing)


def _imagenet_only(found: Gathered) -> Experiment:
    """Meta-Dataset by models that were trained on its ImageNet classes and on nothing else."""
    done = {r.rows[0]["model"] for r in found.few_shot if _of_imagenet_alone(r.rows)}
    command = "cl-cnaps sweep benchmarks/imagenet-only.toml --set specs=FOLDER"
    models = ("simple", "transductive")
    return Experiment(
        "Few-shot",
        "Meta-Dataset, trained on ImageNet alone",
        "few-shot.html",
        [model_name(model) for model in models if model in done],
        [(model_name(model), command) for model in models if model not in done],
    )


def _of_imagenet_alone(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether adapted features on Meta-Dataset are of weights that saw no other data set in training."""
    others = [entry for entry in entries if entry["data_set"] != "ilsvrc_2012"]
    return (
        entries[0]["target"] == META_DATASET
        and len(others) < len(entries)
        and all(entry["adaptation"] != "none" for entry in entries)
        and all(entry["seen_in_training"] == "none" for entry in others)
    )


def paper_protocol(config: Mapping[str, Any], source: str) -> bool | None:
    """Whether labels, rounds and images are the paper's; None for a source that it does not have.

    Fewer runs widen the intervals, and do not make it another protocol.
    """
    paper = PAPER.get(source)
    return None if paper is None else {**config.get("protocol", {}), "runs": paper.runs} == asdict(paper)


def _active(found: Gathered) -> Experiment:
    """The curves of the paper's figure, with its protocol; others are short."""
    curves = [
        (row, paper_protocol(view.record.config, row["source"])) for view in found.active for row in view.rows
    ]
    there = dict.fromkeys(
        f"{model_name(row['model'])} on {ACTIVE_SOURCES.get(row['source'], row['source'])}"
        + (" (short protocol)" if full is False else "")
        for row, full in curves
    )
    missing = []
    for source, title in ACTIVE_SOURCES.items():
        for model in ACTIVE_MODELS:
            mine = [
                one
                for one in curves
                if (one[0]["source"], one[0]["model"]) == (source, model) and is_plain(one[0])
            ]
            states = {
                kind: _state([o for o in mine if o[0]["adaptation"] == kind], source) for kind in FEATURES
            }
            for state in ("", "in part", "short protocol only"):
                if kinds := [kind for kind in FEATURES if states[kind] == state]:
                    both = len(kinds) == len(FEATURES)
                    what = f"{model_name(model)} on {title}" + ("" if both else f", {FEATURES[kinds[0]]}")
                    command = f"cl-cnaps active --source {source} --model {model} --paper"
                    command += f" --adaptation {'both' if both else kinds[0]}"
                    missing.append((f"{what} ({state})" if state else what, command))
    return Experiment("Active", "Label acquisition", "active.html", list(there), missing)


def _state(curves: Sequence[tuple[Row, bool | None]], source: str) -> str | None:
    """None if all curves of the figure are there with the paper's protocol; else how much of it is."""
    tasks: Sequence[str | None] = FIGURE_ALPHABETS if source == "omniglot" else (None,)
    there = {(row["alphabet"], row["strategy"]) for row, full in curves if full}
    if there.issuperset(product(tasks, STRATEGIES)):
        return None
    if there:
        return "in part"
    return "short protocol only" if curves else ""


def _ablations(found: Gathered) -> Experiment:
    present = {one.which for one in found.ablations}
    there = [title for which, title in ABLATIONS.items() if which in present]
    missing = [*_missing_ablations(found), *_ablated_data_sets(found)]
    return Experiment("Ablations", "Parts of the models", "ablations.html", there, missing)


def _ablated_data_sets(found: Gathered) -> list[tuple[str, str]]:
    """The data sets of Meta-Dataset that no row has, then those that some rows lack."""
    have: dict[tuple[str, str], set[str]] = {}
    for one in found.ablations:
        for row in one.rows if one.which != "queries" and one.which in ABLATIONS else ():
            have.setdefault((one.which, row["title"]), set()).update(e["title"] for e in row["results"])
    anywhere = set().union(*have.values())
    missing = _data_sets((column.title for column in COLUMNS), anywhere) if have else []
    lacking: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (which, row_title), titles in have.items():
        lacks = tuple(c.title for c in COLUMNS if c.title in anywhere - titles)
        if lacks:
            lacking.setdefault((which, lacks), []).append(row_title)
    return missing + [
        (f"{_few(rows)} in {ABLATIONS[which]} on {', '.join(lacks)}", _ablate_command(which))
        for (which, lacks), rows in lacking.items()
    ]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else count(len(names), "row")


def _data_sets(missing: Iterable[str], there: Iterable[str]) -> list[tuple[str, str]]:
    """The data sets that no record has, as one thing that is missing."""
    present = set(there)
    names = [title for title in dict.fromkeys(missing) if title not in present]
    return [(f"data sets: {', '.join(names)}", "")] if names else []


def _missing_ablations(found: Gathered) -> list[tuple[str, str]]:
    """The paper's ablations that no record has, and the rows that those there lack, with commands that make them."""
    missing = []
    for which, title in ABLATIONS.items():
        mine = [one for one in found.ablations if one.which == which]
        absent = left_out(which, {row["row"] for one in mine for row in one.rows})
        command = _ablate_command(which)
        if not mine:
            missing.append((title, command))
        elif absent:
            cells = sum(method.of_grid for method in absent)
            names = [method.title for method in absent if not method.of_grid]
            names += [f"{count(cells, 'cell')} of the grid"] if cells else []
            missing.append((f"{', '.join(names)} in {title}", command))
    return missing


def _ablate_command(which: str) -> str:
    """What makes an ablation; without specifications its tasks would have classes for training in them."""
    return f"cl-cnaps ablate {which}" + ("" if which == "queries" else " --specs FOLDER")


def evaluate_command(target: str, model: str) -> str:
    """Return what evaluates a model; on Meta-Dataset with specifications, which name the test classes."""
    specs = " --specs FOLDER" if target == "meta-dataset" else ""
    return f"cl-cnaps evaluate {target} --model {model} --adaptation film{specs}"
