from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cl_cnaps.errors import BadInputError
from cl_cnaps.records.strict_json import canonical, dumps, to_plain


def test_plain_types_come_back_equal() -> None:
    value = {"a": [1, 2.5, True, None, "é"], "b": {"c": 0.1 + 0.2}}
    assert json.loads(dumps(value, "value")) == value


def test_tuples_paths_and_numpy_scalars_become_plain() -> None:
    value = {"t": (1, 2), "p": Path("a") / "b", "f": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True)}
    plain = to_plain(value, "value")
    assert plain == {"t": [1, 2], "p": "a/b", "f": 0.5, "i": 3, "b": True}
    assert [type(plain[key]) for key in "fib"] == [float, int, bool]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -np.inf, np.float32("nan")])
def test_a_number_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    with pytest.raises(BadInputError, match=r"summary\.heads\[1\]\.seconds is -?(nan|inf)"):
        dumps({"heads": [{}, {"seconds": bad}]}, "summary")


@pytest.mark.parametrize("bad", [{1: "a"}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": np.zeros(2)}])
def test_what_json_cannot_hold_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="config"):
        dumps(bad, "config")


def test_the_canonical_text_ignores_the_order_of_keys_only() -> None:
    assert canonical({"a": 1, "b": [1, 2]}, "x") == canonical({"b": (1, 2), "a": 1}, "x")
    assert canonical({"a": [1, 2]}, "x") != canonical({"a": [2, 1]}, "x")
