"""The memory of classes against the paper's equations in dense float64."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
import torch
from reference import dense_gaussian
from torch import Tensor

from cl_cnaps.continual.memory import ClassGroup, ClassKey, ClassMemory
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import class_logits, estimate, support_statistics

D = 9


def features(labels: Tensor, seed: int, width: int = D, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(64, width, generator=torch.Generator().manual_seed(7), dtype=dtype)
    return centres[labels % 64] + 0.7 * torch.randn(len(labels), width, generator=generator, dtype=dtype)


def group(
    classes: list[int], shots: int, seed: int, *, task: int = -1, transductive: bool = True
) -> ClassGroup:
    labels = torch.arange(len(classes)).repeat_interleave(shots)
    z = features(torch.tensor(classes)[labels], seed)
    statistics = support_statistics(z, labels, len(classes))
    keys = tuple(ClassKey(task, c) for c in classes)
    return ClassGroup(keys, estimate(statistics), statistics if transductive else None)


class DenseMemory:
    """Section "Continual Learning", written down: n, mu and Q per class; a class seen again is averaged by count."""

    def __init__(self) -> None:
        self.parameters: dict[int, tuple[float, np.ndarray, np.ndarray]] = {}

    def learn(self, classes: list[int], shots: int, seed: int) -> None:
        labels = torch.arange(len(classes)).repeat_interleave(shots)
        z = features(torch.tensor(classes)[labels], seed).numpy()
        means, covariances = dense_gaussian.means_and_covariances(z, np.eye(len(classes))[labels.numpy()])
        for c, mean, covariance in zip(classes, means, covariances, strict=True):
            n, old_mean, old_q = self.parameters.get(c, (0.0, np.zeros(D), np.zeros((D, D))))
            total = n + shots
            self.parameters[c] = (
                total,
                (n * old_mean + shots * mean) / total,
                (n * old_q + shots * covariance) / total,
            )

    def logits(self, classes: list[int], query: Tensor) -> np.ndarray:
        _, means, covariances = zip(*(self.parameters[c] for c in classes), strict=True)
        return dense_gaussian.logits(np.stack(means), np.stack(covariances), query.numpy())


TASKS: list[tuple[list[int], int]] = [
    ([0, 1, 2], 4),
    ([3, 4], 6),
    ([1, 3], 3),  # one class of each earlier task again
    ([5, 1], 2),  # a new one beside one that was merged already
    ([0, 1, 2], 5),  # a whole task again
]


def test_new_and_seen_again_classes_follow_the_papers_equations() -> None:
    memory, dense = ClassMemory(), DenseMemory()
    query = features(torch.arange(12) % 6, seed=50)
    for t, (classes, shots) in enumerate(TASKS):
        memory = memory.learn(group(classes, shots, seed=t))
        dense.learn(classes, shots, seed=t)
        found = torch.cat([class_logits(part.gaussians, query) for part in memory.groups], dim=1)
        labels = [key.label for key in memory.keys]
        assert sorted(labels) == sorted(dense.parameters)
        np.testing.assert_allclose(found.numpy(), dense.logits(labels, query), rtol=1e-9)
        counts = torch.cat([part.gaussians.counts_K for part in memory.groups]).tolist()
        assert counts == [dense.parameters[label][0] for label in labels]


def test_support_statistics_of_a_class_seen_again_are_those_of_all_its_images() -> None:
    memory = ClassMemory().learn(group([0, 1], 4, seed=0)).learn(group([1, 2], 6, seed=1))
    wanted = [ClassKey(-1, label) for label in (2, 1, 0)]
    found = memory.statistics(wanted)
    first = features(torch.tensor([0] * 4 + [1] * 4), seed=0)
    second = features(torch.tensor([1] * 6 + [2] * 6), seed=1)
    together = [second[6:], torch.cat([first[4:], second[:6]]), first[:4]]
    assert found.counts_K.tolist() == [6, 10, 4]
    for k, z in enumerate(together):
        rows = found.rows_RD[found.row_class_R == k]
        torch.testing.assert_close(found.means_KD[k], z.mean(dim=0))
        torch.testing.assert_close(rows.T @ rows, (z - z.mean(dim=0)).T @ (z - z.mean(dim=0)))


def test_learning_returns_a_new_memory_and_leaves_the_old_one() -> None:
    before = ClassMemory().learn(group([0, 1], 4, seed=0))
    means = before.groups[0].gaussians.means_KD.clone()
    after = before.learn(group([1, 2], 4, seed=1))
    assert before.keys == (ClassKey(-1, 0), ClassKey(-1, 1))
    assert torch.equal(before.groups[0].gaussians.means_KD, means)
    assert set(after.keys) == {ClassKey(-1, c) for c in (0, 1, 2)}


def test_the_same_id_in_two_tasks_is_two_classes_when_keyed_by_task() -> None:
    first, second = group([0, 1], 4, seed=0, task=0), group([0, 1], 4, seed=1, task=1)
    memory = ClassMemory().learn(first).learn(second)
    assert memory.keys == first.keys + second.keys
    assert torch.equal(memory.groups[0].gaussians.means_KD, first.gaussians.means_KD)


def test_only_the_classes_seen_again_leave_their_group() -> None:
    memory = ClassMemory().learn(group([0, 1, 2], 4, seed=0)).learn(group([1], 4, seed=1))
    assert [[key.label for key in part.keys] for part in memory.groups] == [[0, 2], [1]]


def test_a_class_twice_in_one_task_is_refused() -> None:
    twice = group([0, 1], 2, seed=0)
    with pytest.raises(BadInputError, match="twice"):
        ClassMemory().learn(ClassGroup((ClassKey(-1, 0),) * 2, twice.gaussians, None))


def test_asking_for_what_is_not_kept_is_refused() -> None:
    with pytest.raises(BadInputError, match="never learned"):
        ClassMemory().learn(group([0], 3, seed=0)).statistics([ClassKey(-1, 0), ClassKey(-1, 5)])
    with pytest.raises(BadInputError, match="no support statistics"):
        ClassMemory().learn(group([0], 3, seed=0, transductive=False)).statistics([ClassKey(-1, 0)])


def test_state_comes_back_to_the_bit_through_a_weights_only_file() -> None:
    memory = ClassMemory()
    for t, (classes, shots) in enumerate(TASKS):
        memory = memory.learn(group(classes, shots, seed=t))
    file = io.BytesIO()
    torch.save(memory.state(), file)
    file.seek(0)
    back = ClassMemory.from_state(torch.load(file, weights_only=True), torch.device("cpu"), torch.float64)
    query = features(torch.arange(12) % 6, seed=50)
    assert back.keys == memory.keys
    assert back.nbytes() == memory.nbytes()
    for ours, theirs in zip(back.groups, memory.groups, strict=True):
        assert torch.equal(class_logits(ours.gaussians, query), class_logits(theirs.gaussians, query))
    ours, theirs = back.statistics(memory.keys), memory.statistics(memory.keys)
    assert torch.equal(ours.rows_RD, theirs.rows_RD)
    assert torch.equal(ours.means_KD, theirs.means_KD)


def test_rows_that_groups_share_are_counted_once() -> None:
    alone = ClassMemory().learn(group([0, 1, 2, 3], 4, seed=0, transductive=False))
    part = alone.groups[0]
    split = ClassMemory((part.select([0, 1]), part.select([2, 3])))
    assert split.nbytes() == alone.nbytes()
    assert split.nbytes() < sum(ClassMemory((piece,)).nbytes() for piece in split.groups)


def test_memory_of_a_class_is_its_rank_times_the_width_and_at_most_the_width_squared() -> None:
    def of(shots: int, times: int = 1) -> int:
        memory = ClassMemory()
        for t in range(times):
            memory = memory.learn(group([0, 1], shots, seed=t, transductive=False))
        return memory.nbytes()

    number = 8
    # Own rows of two classes, the task's rows (those again and two for the means), the means; and small change.
    assert of(3) <= number * (2 * 3 * D + (2 * 3 + 2) * D + 2 * D) + 200
    # However many images, and however often they come again.
    most = number * (2 * D * D + D * D + 2 * D) + 800
    assert of(100) <= most
    assert of(100, times=6) <= most


def test_two_thousand_classes_in_two_hundred_tasks_are_fast_and_small() -> None:
    width, shots, tasks, per_task = 64, 3, 200, 10
    memory, start = ClassMemory(), time.perf_counter()
    for t in range(tasks):
        labels = torch.arange(per_task).repeat_interleave(shots)
        z = features(labels + per_task * t, seed=t, width=width, dtype=torch.float32)
        statistics = support_statistics(z, labels, per_task)
        keys = tuple(ClassKey(-1, per_task * t + c) for c in range(per_task))
        memory = memory.learn(ClassGroup(keys, estimate(statistics), statistics))
    query = features(torch.arange(20) * 100, seed=1000, width=width, dtype=torch.float32)
    logits = torch.cat([class_logits(part.gaussians, query) for part in memory.groups], dim=1)
    support = memory.statistics(memory.keys)
    seconds = time.perf_counter() - start
    assert logits.shape == (20, tasks * per_task)
    assert support.n_classes == tasks * per_task
    assert seconds < 5
    # A mean and, three times (own, task, support), 3 rows of 64 floats: 2.6 kB a class. A covariance would be 16 kB.
    assert memory.nbytes() / (tasks * per_task) < 3300
