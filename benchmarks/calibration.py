"""How far probabilities may be trusted, and how well unknown images are told from known ones.

    CL_CNAPS_DATA=... python benchmarks/calibration.py results/calibration.csv [--tasks 12]

A task has ten classes of a data set, of which five are learned. Calibration is of new images of those, discrimination
of these against images of the other five. Task i is a function of i alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from cl_cnaps import FewShotClassifier, load
from cl_cnaps.data import open_source
from cl_cnaps.data.atomic import write_text
from cl_cnaps.gaussian.mahalanobis import squared_distances

SETS = {"vgg_flower": "all", "cu_birds": "all", "cifar10": "test"}
SHOTS = (1, 5, 10)
MODELS = ("simple", "transductive")
CLASSES, KNOWN, QUERIES, BINS = 10, 5, 8, 15
COLUMNS = ["model", "set", "shots", "tasks", "accuracy", "ece_learned", "ece_calibrated", "auroc_unknown"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        model = load(name)
        for source_name, split in SETS.items():
            source = open_source(source_name)
            for shots in SHOTS:
                found = [task(model, source, split, shots, i) for i in range(arguments.tasks)]
                confidence = {
                    kind: np.concatenate([one[kind] for one in found]) for kind in ("learned", "calibrated")
                }
                right = np.concatenate([one["right"] for one in found])
                errors = [f"{expected_calibration_error(confidence[kind], right):.3f}" for kind in confidence]
                auroc = np.mean([one["auroc"] for one in found])
                rows.append(
                    [
                        name,
                        source_name,
                        shots,
                        arguments.tasks,
                        f"{right.mean():.3f}",
                        *errors,
                        f"{auroc:.3f}",
                    ]
                )
                print(*rows[-1], flush=True)
    lines = [",".join(map(str, row)) for row in (COLUMNS, *rows)]
    write_text(arguments.out, "\n".join(lines) + "\n")


def task(model, source, split: str, shots: int, i: int) -> dict:  # type: ignore[no-untyped-def, type-arg]
    generator = np.random.default_rng([i, shots])
    names = generator.choice(source.classes(split), CLASSES, replace=False)
    chosen = [generator.choice(source.count(split, name), shots + QUERIES, replace=False) for name in names]
    images = [source.images(split, name, rows.tolist(), 96) for name, rows in zip(names, chosen, strict=True)]
    support, known = (
        torch.cat([x[:shots] for x in images[:KNOWN]]),
        torch.cat([x[shots:] for x in images[:KNOWN]]),
    )
    unknown = torch.cat([x[shots:] for x in images[KNOWN:]])
    labels = np.arange(KNOWN).repeat(shots)
    classifier = FewShotClassifier(model).fit(support, labels, unlabelled=known)
    probabilities = classifier.predict_proba(known)
    right = probabilities.argmax(axis=1) == np.arange(KNOWN).repeat(QUERIES)
    with torch.no_grad():
        features = classifier.continual_.embed(torch.cat([known, unknown]))
        (group,) = classifier.continual_.memory.groups
        nearest = squared_distances(group.gaussians, features).amin(dim=1)
    is_unknown = np.arange(len(nearest)) >= len(known)
    classifier.temperature = "learned"
    return {
        "calibrated": probabilities.max(axis=1),
        "learned": classifier.predict_proba(known).max(axis=1),
        "right": right,
        "auroc": roc_auc_score(is_unknown, nearest.numpy()),
    }


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean distance of confidence and accuracy over bins of equal width (Guo et al. 2017)."""
    of_bin = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return sum(
        (of_bin == b).mean() * abs(confidence[of_bin == b].mean() - right[of_bin == b].mean())
        for b in np.unique(of_bin)
    )


if __name__ == "__main__":
    main()
