"""What a stream's row is called where models stand below each other, and in which order they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_cnaps.results.wording import ENCODING_ORDER, method_name

PAPER_BENCHMARKS = {"split-mnist": "MNIST", "split-cifar10": "CIFAR-10", "split-cifar100": "CIFAR-100"}
"""The columns of `tab:continual-learning-results-table`, in its order, as it calls them."""

CNAPS_ORDER = ("simple", "transductive", "cnaps", "protonet")


def row_name(summary: Mapping[str, Any]) -> str:
    """Model and what else tells its row from others: the encoding, or what it works on."""
    name = method_name(summary)
    if summary["encoding"] is None:
        if summary["model"] == "pixel-ncm":
            return "NCM, pixels"
        if summary["backbone"] == "none":
            return f"{name}, small network"
        return f"{name}, {'backbone' if summary['adaptation'] == 'none' else 'adapted'} features"
    return f"{name}, frozen features" if summary["adaptation"] == "none" else f"{name}, {summary['encoding']}"


def row_order(summary: Mapping[str, Any]) -> tuple[int, str, bool, int]:
    """Sorts the CNAPS models first, their encodings as in the paper, frozen features last; then baselines by name."""
    model, encoding = summary["model"], summary["encoding"]
    rank = CNAPS_ORDER.index(model) if model in CNAPS_ORDER else len(CNAPS_ORDER)
    frozen = summary["adaptation"] == "none"
    return rank, model, frozen, ENCODING_ORDER.index(encoding) if encoding in ENCODING_ORDER else -1
