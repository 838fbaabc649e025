from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import (
    Array,
    accuracy_matrix,
    average_incremental_accuracy,
    backward_transfer,
    estimate,
    final_accuracy,
    forgetting,
    summarise,
)

NAN = np.nan
# Worked by hand: task 0 goes 0.9, 0.95, 0.6; task 1 goes 0.8, 0.7; task 2 is 0.5.
ONE_RUN = np.array([[[0.9, NAN, NAN], [0.95, 0.8, NAN], [0.6, 0.7, 0.5]]])


@st.composite
def accuracies(draw: st.DrawFn, least_tasks: int = 1) -> Array:
    runs, tasks = draw(st.integers(1, 4)), draw(st.integers(least_tasks, 6))
    cells = st.lists(st.floats(0, 1), min_size=runs * tasks * tasks, max_size=runs * tasks * tasks)
    accuracy = np.array(draw(cells)).reshape(runs, tasks, tasks)
    return np.where(np.tril(np.ones((tasks, tasks), dtype=bool)), accuracy, NAN)


def rows_of(accuracy: Array, head: str = "single") -> list[dict[str, Any]]:
    return [
        {"run": run, "step": step, "task": task, "head": head, "accuracy": accuracy[run, step, task]}
        for run, step, task in np.argwhere(~np.isnan(accuracy))
    ]


def test_hand_worked_numbers() -> None:
    assert final_accuracy(ONE_RUN) == pytest.approx([0.6])  # (0.6 + 0.7 + 0.5) / 3
    assert forgetting(ONE_RUN) == pytest.approx([0.225])  # ((0.95 - 0.6) + (0.8 - 0.7)) / 2
    assert backward_transfer(ONE_RUN) == pytest.approx([-0.2])  # ((0.6 - 0.9) + (0.7 - 0.8)) / 2
    assert average_incremental_accuracy(ONE_RUN) == pytest.approx([(0.9 + 0.875 + 0.6) / 3])


def test_interval_is_students_t_over_runs() -> None:
    # Mean 0.7, standard deviation 0.1, three runs: t(2, 97.5 %) = 4.302653 from a table of quantiles.
    found = estimate(np.array([0.6, 0.7, 0.8]))
    assert found.mean == pytest.approx(0.7)
    assert found.ci95 == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert found.per_run == (0.6, 0.7, 0.8)


def test_one_run_has_no_interval_and_one_task_no_forgetting() -> None:
    final = summarise(ONE_RUN)["final_accuracy"]
    assert final is not None
    assert final.ci95 is None
    alone = summarise(np.array([[[0.8]], [[0.9]]]))
    of_steps = ("forgetting", "backward_transfer", "performance_drop", "novel_accuracy", "harmonic_accuracy")
    assert [alone[name] for name in of_steps] == [None] * 5
    for name in ("final_accuracy", "average_incremental_accuracy", "learning_accuracy", "image_accuracy"):
        figure = alone[name]
        assert figure is not None
        assert figure.mean == pytest.approx(0.85)


@settings(deadline=None, max_examples=60)
@given(accuracies(least_tasks=2))
def test_nothing_is_lost_beyond_the_best_and_transfer_bounds_forgetting(accuracy: Array) -> None:
    lost, transfer = forgetting(accuracy), backward_transfer(accuracy)
    assert lost is not None
    assert transfer is not None
    assert (lost >= -transfer - 1e-12).all()  # the best so far is at least what was learned at first
    assert (np.abs(lost) <= 1).all()


@settings(deadline=None, max_examples=60)
@given(accuracies(), st.floats(0, 1))
def test_figures_are_fractions_and_a_constant_learner_forgets_nothing(accuracy: Array, level: float) -> None:
    found = summarise(accuracy)
    for name, figure in found.items():
        if figure is not None and name.endswith("accuracy"):
            assert all(-1e-12 <= value <= 1 + 1e-12 for value in figure.per_run)
    steady = summarise(np.where(np.isnan(accuracy), NAN, level))
    for other in (steady["forgetting"], steady["backward_transfer"], steady["performance_drop"]):
        assert other is None or other.mean == pytest.approx(0, abs=1e-12)
    final = steady["final_accuracy"]
    assert final is not None
    assert final.mean == pytest.approx(level)


@settings(deadline=None, max_examples=40)
@given(accuracies(), st.randoms(use_true_random=False))
def test_rows_in_any_order_make_the_same_matrix(accuracy: Array, random: Any) -> None:
    rows = rows_of(accuracy) + rows_of(accuracy / 2, head="multi")
    random.shuffle(rows)
    assert np.array_equal(accuracy_matrix(rows, "single"), accuracy, equal_nan=True)
    assert np.array_equal(accuracy_matrix(rows, "multi"), accuracy / 2, equal_nan=True)


@pytest.mark.parametrize("bad", [NAN, np.inf, -0.1, 1.5])
def test_a_number_that_is_no_accuracy_is_refused_by_run_step_and_task(bad: float) -> None:
    rows = rows_of(np.repeat(ONE_RUN, 2, axis=0))
    worse = [
        row | {"accuracy": bad} if (row["run"], row["step"], row["task"]) == (1, 2, 0) else row
        for row in rows
    ]
    with pytest.raises(BadInputError, match=r"run 1, step 2, task 0 \(single head\)"):
        accuracy_matrix(worse, "single")


def test_missing_repeated_and_unseen_cells_are_refused() -> None:
    rows = rows_of(ONE_RUN)
    with pytest.raises(BadInputError, match=r"run 0, step 1, task 0 .* is missing"):
        accuracy_matrix([row for row in rows if (row["step"], row["task"]) != (1, 0)], "single")
    with pytest.raises(BadInputError, match=r"run 0, step 0, task 0 .* is given twice"):
        accuracy_matrix([*rows, rows[0]], "single")
    with pytest.raises(BadInputError, match=r"run 0, step 0, task 2 .* not been seen"):
        accuracy_matrix([*rows, rows[0] | {"task": 2}], "single")
    with pytest.raises(BadInputError, match="no accuracies for the multi head"):
        accuracy_matrix(rows, "multi")
    with pytest.raises(BadInputError, match="count from 0"):
        accuracy_matrix([rows[0] | {"run": -1}], "single")
    with pytest.raises(BadInputError, match="runs x steps x tasks"):
        summarise(np.zeros((2, 3)))
