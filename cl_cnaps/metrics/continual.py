"""How much a continual learner knows and forgets, from its accuracies after every task, and its calibration.

Accuracies are A[run, step, task]: the accuracy (a fraction) on `task` after learning the tasks 0..step, for one head;
NaN where task > step: not seen yet. T is the number of tasks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.intervals import Array, Estimate, estimate

Labels = NDArray[np.int64]

BINS = 15
"""Bins of equal width of the calibration error, as in Guo et al., 2017."""

Figures = dict[str, Estimate | None]
"""Figures of one head by name; None where a stream has none, as for one task those that compare two steps."""


def final_accuracy(accuracy: Array) -> Array:
    """Per run: mean over all tasks of A[T-1, i]; a cell of `tab:continual-learning-results-table`."""
    return np.asarray(accuracy[:, -1, :].mean(axis=1))


def forgetting(accuracy: Array) -> Array | None:
    """Per run: mean over the tasks i < T-1 of (max over i <= t < T-1 of A[t, i]) - A[T-1, i].

    Negative when the last step improved old tasks beyond their best. (Chaudhry et al., 2018.)
    """
    if accuracy.shape[1] == 1:
        return None
    best = np.nanmax(accuracy[:, :-1, :-1], axis=1)
    return np.asarray((best - accuracy[:, -1, :-1]).mean(axis=1))


def backward_transfer(accuracy: Array) -> Array | None:
    """Per run: mean over the tasks i < T-1 of A[T-1, i] - A[i, i]; negative is a loss.

    (Lopez-Paz and Ranzato, 2017.)
    """
    if accuracy.shape[1] == 1:
        return None
    when_learned = np.diagonal(accuracy, axis1=1, axis2=2)[:, :-1]
    return np.asarray((accuracy[:, -1, :-1] - when_learned).mean(axis=1))


def learning_accuracy(accuracy: Array) -> Array:
    """Per run: mean over the tasks of A[i, i], the accuracy on a task just learned. (Riemer et al., 2019.)"""
    return np.asarray(np.diagonal(accuracy, axis1=1, axis2=2).mean(axis=1))


def forward_transfer(before: Array, chance: Array) -> Array | None:
    """Per run: mean over the tasks i > 0 of A[i-1, i] - chance[i]; None for one task. (Lopez-Paz and Ranzato, 2017.)

    A single head cannot name a class that it has not seen. Where the classes of tasks are disjoint, A[i-1, i] and
    chance are therefore 0, and so is this number, by definition.

    Args:
        before: R x (T-1), the accuracy on task i after learning the tasks before it.
        chance: T-1, the accuracy of guessing among the classes seen by then.
    """
    if before.shape[1] == 0:
        return None
    if before.shape[1:] != chance.shape:
        raise BadInputError(f"{before.shape[1]} tasks have as many chances, not {len(chance)}")
    return np.asarray((before - chance).mean(axis=1))


def image_weighted(accuracy: Array, n_queries: Array) -> Array:
    """Per run and step: the accuracy over all query images of the tasks seen, R x T.

    Where tasks are unequal it differs from the mean over tasks, and it is what few-shot and class-incremental tables
    report after each session. Its last column is the last accuracy over images.

    Args:
        accuracy: A, R x T x T.
        n_queries: query images of each task, T.
    """
    if n_queries.shape != accuracy.shape[2:] or not (n_queries > 0).all():
        raise BadInputError(
            f"{accuracy.shape[2]} tasks need a positive number of queries each, not {n_queries.tolist()}"
        )
    seen = np.tril(np.ones(accuracy.shape[1:], dtype=bool))
    right = np.where(seen, accuracy, 0.0) @ n_queries
    return np.asarray(right / (seen @ n_queries))


def performance_drop(accuracy: Array, n_queries: Array) -> Array | None:
    """Per run: accuracy over all images after the first task, minus that after the last; FSCIL's PD."""
    by_step = image_weighted(accuracy, n_queries)
    return None if accuracy.shape[1] == 1 else np.asarray(by_step[:, 0] - by_step[:, -1])


def base_and_novel(accuracy: Array, n_queries: Array) -> tuple[Array, Array, Array] | None:
    """Per run, after the last task: accuracy of the first task, over the images of all others, and harmonic mean.

    The harmonic mean is 0 where either is 0. None for one task.
    """
    if accuracy.shape[1] == 1:
        return None
    last = accuracy[:, -1, :]
    base = last[:, 0]
    novel = np.asarray(last[:, 1:] @ n_queries[1:] / n_queries[1:].sum())
    both = base + novel
    harmonic = np.where(both > 0, 2 * base * novel / np.where(both > 0, both, 1.0), 0.0)
    return base, novel, harmonic


def accuracy_by_step(accuracy: Array) -> Array:
    """Per run and step: mean over the tasks seen so far."""
    return np.asarray(np.nanmean(accuracy, axis=2))


def average_incremental_accuracy(accuracy: Array) -> Array:
    """Per run: mean over the steps of the mean over the tasks seen at that step. (Rebuffi et al., 2017.)"""
    return np.asarray(accuracy_by_step(accuracy).mean(axis=1))


def summarise(accuracy: Array, n_queries: Array | None = None) -> Figures:
    """All figures of one head that come of its accuracies.

    Args:
        accuracy: A, R x T x T.
        n_queries: query images of each task, T; the same of all tasks if not given.
    """
    check_accuracy(accuracy)
    if n_queries is None:
        n_queries = np.ones(accuracy.shape[2])
    by_step = image_weighted(accuracy, n_queries)
    base, novel, harmonic = base_and_novel(accuracy, n_queries) or (None, None, None)
    per_run: dict[str, Array | None] = {
        "final_accuracy": final_accuracy(accuracy),
        "forgetting": forgetting(accuracy),
        "backward_transfer": backward_transfer(accuracy),
        "average_incremental_accuracy": average_incremental_accuracy(accuracy),
        "learning_accuracy": learning_accuracy(accuracy),
        "image_accuracy": by_step[:, -1],
        "incremental_image_accuracy": by_step.mean(axis=1),
        "performance_drop": performance_drop(accuracy, n_queries),
        "base_accuracy": base,
        "novel_accuracy": novel,
        "harmonic_accuracy": harmonic,
    }
    return {name: None if values is None else estimate(values) for name, values in per_run.items()}


def check_accuracy(accuracy: Array, label: str = "") -> None:
    """Refuse a matrix with a hole, a number that is no accuracy, or a task scored before it was seen."""
    if accuracy.ndim != 3 or accuracy.shape[1] != accuracy.shape[2] or 0 in accuracy.shape:
        raise BadInputError(
            f"accuracies must be runs x steps x tasks with as many steps as tasks, not {accuracy.shape}"
        )
    seen = np.tril(np.ones(accuracy.shape[1:], dtype=bool))
    with np.errstate(invalid="ignore"):
        bad = np.where(seen, ~((accuracy >= 0) & (accuracy <= 1)), ~np.isnan(accuracy))
    if bad.any():
        run, step, task = (int(i) for i in np.argwhere(bad)[0])
        found = accuracy[run, step, task]
        why = "a fraction between 0 and 1 was expected" if task <= step else "that task had not been seen yet"
        raise BadInputError(f"accuracy of run {run}, step {step}, task {task}{label} is {found}: {why}")


def accuracy_matrix(rows: list[dict[str, Any]], head: str) -> Array:
    """A[run, step, task] from rows with these keys, `head` and `accuracy`; every cell once, none missing."""
    mine = [row for row in rows if row["head"] == head]
    if not mine:
        raise BadInputError(f"there are no accuracies for the {head} head")
    index = np.array([[int(row[key]) for key in ("run", "step", "task")] for row in mine])
    if index.min() < 0:
        raise BadInputError(f"run, step and task count from 0; the {head} head has {index.min()}")
    runs, steps, tasks = (int(n) + 1 for n in index.max(axis=0))
    accuracy = np.full((runs, max(steps, tasks), max(steps, tasks)), np.nan)
    filled = np.zeros(accuracy.shape, dtype=bool)
    for cell, row in zip(map(tuple, index), mine, strict=True):
        if filled[cell]:
            raise BadInputError(
                "accuracy of run {}, step {}, task {} ({} head) is given twice".format(*map(int, cell), head)
            )
        filled[cell] = True
        accuracy[cell] = float(row["accuracy"])
    missing = np.argwhere(~filled & np.tril(np.ones(accuracy.shape[1:], dtype=bool)))
    if len(missing):
        run, step, task = (int(i) for i in missing[0])
        raise BadInputError(f"accuracy of run {run}, step {step}, task {task} ({head} head) is missing")
    check_accuracy(accuracy, f" ({head} head)")
    return accuracy


def query_counts(rows: list[dict[str, Any]]) -> Array:
    """Query images of each task, T, from rows with `task` and `n_queries`."""
    counts = {int(row["task"]): float(row["n_queries"]) for row in rows}
    return np.array([counts[task] for task in sorted(counts)])


def expected_calibration_error(confidence: Array, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Return the mean distance between confidence and accuracy over bins of confidence, weighted by their images.

    (Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, eq. 3.)

    Args:
        confidence: N, the largest probability of each image.
        right: N, whether the class with that probability is the image's.
        bins: of equal width in (0, 1].
    """
    if confidence.ndim != 1 or confidence.shape != right.shape or len(right) == 0:
        raise BadInputError(
            f"there is one confidence for each image, not {confidence.shape} for {right.shape}"
        )
    if not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-6):
        raise BadInputError(
            f"a confidence is a probability; they are {confidence.min():g} to {confidence.max():g}"
        )
    number = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.abs(np.bincount(number, weights=right - confidence, minlength=bins))
    return float(gaps.sum() / len(right))


def negative_log_likelihood(log_probabilities: Array, columns: Labels) -> float:
    """Return the mean of -log p of the right class, N x K with its column; infinite where it was held impossible."""
    if log_probabilities.ndim != 2 or len(log_probabilities) != len(columns) or len(columns) == 0:
        raise BadInputError(
            f"log probabilities are N x K for N labels, not {log_probabilities.shape} for {len(columns)}"
        )
    if not (columns.min() >= 0 and columns.max() < log_probabilities.shape[1]):
        raise BadInputError(f"a label lies outside of the {log_probabilities.shape[1]} columns")
    if not np.allclose(np.exp(log_probabilities).sum(axis=1), 1, atol=1e-4):
        raise BadInputError("probabilities must sum to one in every row")
    return float(-log_probabilities[np.arange(len(columns)), columns].mean())
