"""Speed of the factored classifier against the textbook form: one dense covariance and one inverse per class.

    python benchmarks/speed/head.py [--json] [--threads 2] [--repeats 5]

Both forms are timed in one run, interleaved, on the same features; a ratio is the median textbook time over the
median time of this package, and both are checked to give the same logits. Takes about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time

import torch
from torch import Tensor

from cl_cnaps.gaussian import estimate, mahalanobis_logits, support_statistics

CASES = [(5, 5, 10), (20, 5, 10), (50, 10, 10), (10, 100, 100), (100, 100, 10)]
"""(way, shot, queries per class)"""
WIDTHS = [512, 1280]


def textbook(support: Tensor, labels: Tensor, way: int, query: Tensor) -> Tensor:
    """Simple CNAPS as it is usually written."""
    width = support.shape[1]
    identity = torch.eye(width)
    task = torch.cov(support.T, correction=0)
    columns = []
    for k in range(way):
        own = support[labels == k]
        ratio = len(own) / (len(own) + 1)
        covariance = ratio * torch.cov(own.T, correction=0) + (1 - ratio) * task + identity
        offset = query - own.mean(dim=0)
        columns.append(-((offset @ torch.inverse(covariance)) * offset).sum(dim=1))
    return torch.stack(columns, dim=1)


def factored(support: Tensor, labels: Tensor, way: int, query: Tensor) -> Tensor:
    return mahalanobis_logits(estimate(support_statistics(support, labels, way)), query)


def features_like_a_network(way: int, per_class: int, width: int, generator: torch.Generator) -> Tensor:
    """Rectified, correlated features with class structure, of the scale that the backbones give."""
    mixing = torch.randn(width // 4, width, generator=generator) / (width // 4) ** 0.5
    latent = torch.randn(way * per_class, width // 4, generator=generator)
    centres = torch.randn(way, width // 4, generator=generator)
    latent = latent + centres.repeat_interleave(per_class, dim=0)
    return torch.relu(latent @ mixing)


def measure(way: int, shot: int, queries: int, width: int, repeats: int) -> dict[str, float | int]:
    generator = torch.Generator().manual_seed(0)
    everything = features_like_a_network(way, shot + queries, width, generator).view(
        way, shot + queries, width
    )
    support, query = everything[:, :shot].reshape(-1, width), everything[:, shot:].reshape(-1, width)
    labels = torch.arange(way).repeat_interleave(shot)
    times: dict[str, list[float]] = {"textbook": [], "factored": []}
    results = {}
    for repeat in range(repeats + 1):
        for name, head in (("textbook", textbook), ("factored", factored)):
            start = time.perf_counter()
            results[name] = head(support, labels, way, query)
            if repeat:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    difference = (results["textbook"] - results["factored"]).abs().max() / results["textbook"].abs().max()
    if float(difference) > 1e-4:
        raise SystemExit(
            f"the two forms differ by {float(difference):.1e} at way {way}, shot {shot}, width {width}"
        )
    slow, fast = (statistics.median(times[name]) for name in ("textbook", "factored"))
    return {
        "width": width,
        "way": way,
        "shot": shot,
        "queries_per_class": queries,
        "textbook_ms": round(1000 * slow, 2),
        "factored_ms": round(1000 * fast, 2),
        "ratio": round(slow / fast, 1),
        "largest_relative_difference": float(difference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ratios = []
    for width in WIDTHS:
        for way, shot, queries in CASES:
            row = measure(way, shot, queries, width, arguments.repeats)
            ratios.append(row["ratio"])
            if arguments.json:
                print(
                    json.dumps({**row, "threads": arguments.threads, "torch": torch.__version__}), flush=True
                )
            else:
                case = f"d={width:5d}  {way:3d}-way {shot:3d}-shot {queries:3d} queries a class"
                times = f"textbook {row['textbook_ms']:9.2f} ms   factored {row['factored_ms']:8.2f} ms"
                print(f"{case}   {times}   {row['ratio']:6.1f} x", flush=True)
    if not arguments.json:
        mean = statistics.geometric_mean(ratios)
        print(f"geometric mean {mean:.1f} x ({platform.machine()}, torch {torch.__version__})")


if __name__ == "__main__":
    main()
