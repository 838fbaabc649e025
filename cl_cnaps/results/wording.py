"""How models, settings and numbers are written for people: the same in tables, titles and legends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cl_cnaps.models.variants import VARIANTS

ENCODING_ORDER = ("moving", "first", "averaging")
HEAD_ORDER = ("multi", "single")
"""As in the paper's table and chart."""

_FEATURES = {"film": "adapted features", "none": "frozen features"}

ABSENT = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"

_MODELS = {
    "simple": "Simple CNAPS",
    "transductive": "Transductive CNAPS",
    "cnaps": "CNAPS",
    "protonet": "ProtoNet",
    "naive": "Naive",
    "joint": "Joint",
    "replay": "Replay",
    "ewc": "EWC",
    "si": "SI",
    "rwalk": "RWalk",
    "vcl": "VCL",
    "lwf": "LwF",
    "slda": "SLDA",
    "ncm": "NCM",
    "fecam": "FeCAM",
    "simplecil": "SimpleCIL",
    "lda": "LDA",
    "ridge": "Ridge",
    "ranpac": "RanPAC",
    "acil": "ACIL",
    "klda": "KLDA",
    "randumb": "RanDumb",
    "fsa-film": "FSA-FiLM",
    "joint-probe": "Joint linear probe",
}


def model_name(model: str) -> str:
    """The model as a paper would write it; names not known here stay as they are."""
    return _MODELS.get(model, model)


STRATEGIES = {"random": "random", "entropy": "predictive entropy", "variation-ratio": "variation ratio"}
"""Acquisition strategies in the paper's order, as it calls them."""

_METRICS = {
    "mahalanobis": "squared Mahalanobis",
    "root-riemannian": "root Riemannian",
    "euclidean": "squared Euclidean",
    "l1": "L1",
    "cosine": "cosine",
    "dot": "negative dot product",
}


def method_name(of: Mapping[str, Any]) -> str:
    """The model of an entry with its variant, or its metric if it has another than its own: `Simple CNAPS, cosine`."""
    name = model_name(of["model"])
    if is_plain(of):
        return name
    if of.get("variant", "plain") != "plain":
        name = f"{name}, {VARIANTS[of['variant']].title}"
    own_metric = of.get("metric") in (None, "mahalanobis")
    return name if own_metric else f"{name}, {metric_name(of['metric'])}"


def metric_name(metric: str) -> str:
    """The metric as a paper would write it."""
    return _METRICS.get(metric, metric)


def is_plain(of: Mapping[str, Any]) -> bool:
    """Whether an entry is of a model itself and not of a variant, or of one with another metric than its own.

    Entries from before there were variants name neither.
    """
    usual = (None, "euclidean" if of["model"] == "protonet" else "mahalanobis")
    return of.get("variant") in (None, "plain") and of.get("metric") in usual


def adaptation_words(adaptation: str | None) -> str:
    """`frozen features` for none, `adapted features` for FiLM's; nothing for a model without that choice."""
    return "" if adaptation is None else _FEATURES.get(adaptation, f"adaptation {adaptation}")


def in_order(values: Iterable[str | None], order: tuple[str, ...]) -> list[str | None]:
    """Known values in their order, then the others by name."""
    return sorted(values, key=lambda v: (order.index(v) if v in order else len(order), v or ""))


def count(number: int, noun: str) -> str:
    """`1 run`, `5 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def percent(fraction: float | None, ci95: float | None = None) -> str:
    """A fraction as per cent with one digit and its interval, `69.5 ± 1.0`; an en dash for None."""
    if fraction is None:
        return ABSENT
    text = f"{100 * fraction:z.1f}".replace("-", _MINUS)
    return text if ci95 is None else f"{text} ± {100 * ci95:.1f}"


def paper_cell(paper: Mapping[str, Any] | None) -> str:
    """The paper's figure as printed there; an en dash where it has none."""
    if paper is None:
        return ABSENT
    return f"{paper['mean']:.1f}" + ("" if paper["interval"] is None else f" ± {paper['interval']:.1f}")


def duration(seconds: float) -> str:
    """Seconds with one digit below 100, none above."""
    return f"{seconds:.1f}" if seconds < 99.95 else f"{seconds:.0f}"


def size(n_bytes: float) -> str:
    """Bytes in the unit a person would choose."""
    if n_bytes < 999.5:
        return f"{n_bytes:.0f} B"
    units = ["kB", "MB", "GB", "TB"]
    number = n_bytes / 1000
    while number >= 999.5 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.0f} {units[0]}" if number >= 99.95 else f"{number:.1f} {units[0]}"


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle replaced by an ellipsis where it is longer."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"
