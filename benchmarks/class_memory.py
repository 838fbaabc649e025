"""What a class takes and what fewer directions of its scatter cost: accuracy against bytes per class on real classes.

    CL_CNAPS_DATA=... python -m benchmarks.class_memory results/class_memory.csv

Split-CIFAR-100 (100 shots, 40 queries a class) and the 659 characters of Omniglot's evaluation split (15 shots, 5
queries; characters of the other split were trained on), one stream of each under the First encoding with the shipped
weights at the default size; single head. Rows are kept in 8 bits wherever a number of directions is given. Nothing is
chosen here.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.speed.classes import Features, answers, learner, stream_features
from cl_cnaps.continual.benchmarks import StreamConfig
from cl_cnaps.models.loading import load_model
from cl_cnaps.torch_setup import set_up_torch

COLUMNS = (
    "benchmark",
    "classes",
    "shots",
    "directions",
    "shortlist",
    "bytes_per_class",
    "accuracy",
    "agreement",
)
RANKS = (8, 16, 32, 64)
SHORTLIST = 256
STREAMS = {
    "cifar100": StreamConfig("cifar100", shots=100, queries=40, classes_per_task=10),
    "omniglot": StreamConfig("omniglot", shots=15, queries=5, classes_per_task=100),
}


def main() -> None:
    """Measure both streams and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    set_up_torch(arguments.threads)
    model = load_model("simple", device="cpu").model
    rows: list[dict[str, object]] = []
    for name, config in STREAMS.items():
        for row in curve(stream_features(config, model)):
            rows.append({"benchmark": name, "shots": config.shots, **row})
            print(rows[-1], flush=True)
    with arguments.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def curve(features: Features) -> Iterator[dict[str, object]]:
    """All directions, then few of them, then few with a shortlist: accuracy, and agreement with all directions."""
    exact = None
    shots = int(torch.bincount(torch.cat(features.support_labels)).max())
    settings = [(None, None), *((rank, None) for rank in RANKS if rank < shots), (RANKS[2], SHORTLIST)]
    for rank, shortlist in settings:
        continual = learner(features.query.shape[1], rank, shortlist)
        for task, (support, labels) in enumerate(zip(features.support, features.support_labels, strict=True)):
            continual.learn(support, labels, task)
        memory = continual.memory
        if shortlist is not None and len(memory.keys) <= shortlist:
            continue
        found = answers(continual, features.query)
        exact = found if exact is None else exact
        shared = sum(rows.nbytes for rows in (memory.within_RD, memory.left_RD) if rows is not None)
        yield {
            "classes": len(memory.keys),
            "directions": "all" if rank is None else rank,
            "shortlist": "none" if shortlist is None else shortlist,
            "bytes_per_class": round((memory.nbytes() - shared) / len(memory.keys)),
            "accuracy": round(float((found == features.query_labels).double().mean()), 4),
            "agreement": round(float((found == exact).double().mean()), 4),
        }


if __name__ == "__main__":
    main()
