"""How far probabilities may be trusted, and how well unknown images are told from known ones.

    CL_CNAPS_DATA=... python benchmarks/calibration.py results --specs meta_dataset_specs [--tasks 12]

calibration_scales.csv has the scale of the temperature that is best for new images of validation classes, those of the
training recipe of the shipped weights: the prior of every fit (cl_cnaps/calibration.py). A task has 2 to 10 classes.

calibration.csv is measured on test classes. A task has ten classes of a data set, of which five are learned.
Calibration is of new images of those, discrimination of these against images of the other five.

Task i is a function of i alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import cross_entropy

from cl_cnaps import FewShotClassifier, load
from cl_cnaps.calibration import temperature_unit
from cl_cnaps.data import open_source
from cl_cnaps.data.atomic import write_text
from cl_cnaps.episodes.episode_images import SPLIT, EpisodeImages
from cl_cnaps.episodes.spec import ClassTable
from cl_cnaps.few_shot.evaluation_sets import evaluation_set
from cl_cnaps.gaussian.mahalanobis import squared_distances
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.training.recipe import read_recipe
from cl_cnaps.training.tasks import open_data

RECIPE = Path(__file__).parent / "training" / "simple-efficientnet-lite0.toml"
SETS = ("vgg_flower", "cu_birds", "cifar10")
SHOTS = (1, 5, 10)
MODELS = ("simple", "transductive")
CLASSES, KNOWN, QUERIES, BINS = 10, 5, 8, 15
COLUMNS = ("model", "set", "shots", "tasks", "accuracy", "ece_learned", "ece_calibrated", "auroc_unknown")
Pool = tuple[EpisodeImages, ClassTable]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the two files")
    parser.add_argument("--specs", type=Path, required=True)
    parser.add_argument(
        "--tasks", type=int, default=12, help="of each set and number of shots, or of each source"
    )
    parser.add_argument("--model", choices=MODELS, action="append", help="both if not given")
    parser.add_argument("--only", choices=("scales", "errors"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: load(name) for name in arguments.model or MODELS}
    if arguments.only != "errors":
        data = open_data(replace(read_recipe(RECIPE), pack=False), 0, specs=arguments.specs).validation
        pools = [(tasks.pools[name].view, tasks.pools[name].split.classes) for name, tasks in data.items()]
        rows: list[Sequence[Any]] = [("model", "tasks", "scale")]
        for name, model in models.items():
            rows.append(
                (name, arguments.tasks * len(pools), f"{best_scale(model, pools, arguments.tasks):.4g}")
            )
            print(*rows[-1], flush=True)
        write(arguments.out / "calibration_scales.csv", rows)
    if arguments.only != "scales":
        rows = [COLUMNS]
        for name, model in models.items():
            for source in SETS:
                found = evaluation_set(open_source(source), specs=arguments.specs)
                for shots in SHOTS:
                    pool = (found.images, found.classes.classes)
                    rows.append(
                        (name, source, shots, arguments.tasks, *errors(model, pool, shots, arguments.tasks))
                    )
                    print(*rows[-1], flush=True)
        write(arguments.out / "calibration.csv", rows)


def write(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    write_text(path, "".join(",".join(map(str, row)) + "\n" for row in rows))


def draw(pool: Pool, ways: int, shots: int, size: int, generator: np.random.Generator) -> list[Tensor]:
    """Images of classes that have enough, shots + QUERIES of each."""
    images, table = pool
    enough = {n: count for n, count in zip(table.names, table.sizes, strict=True) if count >= shots + QUERIES}
    names = generator.choice(sorted(enough), min(ways, len(enough)), replace=False).tolist()
    return [
        images.images(
            SPLIT, name, generator.choice(enough[name], shots + QUERIES, replace=False).tolist(), size
        )
        for name in names
    ]


def learned(
    loaded: LoadedModel, images: Sequence[Tensor], shots: int
) -> tuple[FewShotClassifier, Tensor, Tensor]:
    """A classifier of the first images of each class, and the others with their classes."""
    queries = torch.cat([of_class[shots:] for of_class in images])
    labels = np.arange(len(images)).repeat(shots)
    support = torch.cat([of_class[:shots] for of_class in images])
    classifier = FewShotClassifier(loaded).fit(support, labels, unlabelled=queries)
    return classifier, queries, torch.arange(len(images)).repeat_interleave(QUERIES)


@torch.no_grad()
def best_scale(loaded: LoadedModel, pools: Sequence[Pool], tasks: int) -> float:
    """The scale with the least cross-entropy over tasks of all pools."""
    steps = torch.linspace(-8, 8, 641, dtype=torch.float64)
    loss = torch.zeros_like(steps)
    for pool in pools:
        for i in range(tasks):
            generator = np.random.default_rng([i, 2])
            shots, ways = SHOTS[i % len(SHOTS)], int(generator.integers(2, 11))
            images = draw(pool, ways, shots, loaded.model.backbone.info.image_size, generator)
            classifier, queries, labels = learned(loaded, images, shots)
            continual = classifier.continual_
            logits = continual.logits(continual.embed(queries), classifier.known_keys, covered=False).double()
            unit = temperature_unit(loaded.model, len(images), shots * len(images), len(queries))
            loss += torch.stack(
                [cross_entropy(logits / (unit * math.exp(step)), labels) for step in steps.tolist()]
            )
    return math.exp(float(steps[loss.argmin()]))


def errors(loaded: LoadedModel, pool: Pool, shots: int, tasks: int) -> list[str]:
    """Accuracy, expected calibration error with both temperatures, AUROC of unknown images."""
    found = [task(loaded, pool, shots, i) for i in range(tasks)]
    right = np.concatenate([one["right"] for one in found])
    sure = [np.concatenate([one[kind] for one in found]) for kind in ("learned", "calibrated")]
    auroc = float(np.mean([one["auroc"] for one in found]))
    return [f"{value:.3f}" for value in (right.mean(), *(calibration_error(c, right) for c in sure), auroc)]


@torch.no_grad()
def task(loaded: LoadedModel, pool: Pool, shots: int, i: int) -> dict[str, Any]:
    images = draw(
        pool, CLASSES, shots, loaded.model.backbone.info.image_size, np.random.default_rng([i, shots])
    )
    classifier, queries, labels = learned(loaded, images[:KNOWN], shots)
    continual, keys = classifier.continual_, classifier.known_keys
    features = continual.embed(torch.cat([queries, *(of_class[shots:] for of_class in images[KNOWN:])]))
    logits = continual.logits(features[: len(queries)], keys, covered=False).double()
    found: dict[str, Any] = {"right": (logits.argmax(dim=1) == labels).numpy()}
    for kind in ("calibrated", "learned"):
        classifier.temperature = kind  # type: ignore[assignment]
        sure = torch.softmax(logits / classifier.temperature_for(len(queries)), dim=1)
        found[kind] = sure.amax(dim=1).numpy()
    nearest = squared_distances(continual.gaussians(keys), features).amin(dim=1)
    found["auroc"] = roc_auc_score(np.arange(len(nearest)) >= len(queries), nearest.numpy())
    return found


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean distance of confidence and accuracy over bins of equal width (Guo et al. 2017)."""
    of_bin = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(
        sum(
            (of_bin == b).mean() * abs(confidence[of_bin == b].mean() - right[of_bin == b].mean())
            for b in np.unique(of_bin)
        )
    )


if __name__ == "__main__":
    main()
