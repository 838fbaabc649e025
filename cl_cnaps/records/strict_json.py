"""JSON as the standard has it: no NaN, no infinity, no value that reads back as something else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from cl_cnaps.errors import BadInputError

_DEEPEST = 32
Json = Any
"""A tree of dict (with string keys), list, str, int, float, bool and None."""


def to_plain(value: Any, where: str) -> Json:
    """Copy `value` into plain JSON types; an error names the place (`where.key[3]`) of what does not fit.

    Tuples become lists, paths become text with forward slashes, NumPy scalars become Python numbers.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadInputError(f"{where} has the key {key!r}; keys must be text to be written as JSON")
        return {key: to_plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [to_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, int | float) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return to_plain(value.item(), where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadInputError(
                f"{where} is {value}; a record holds finite numbers only (null says 'not defined')"
            )
        return float(value)
    raise BadInputError(f"{where} is a {type(value).__name__}, which cannot be written as JSON")


def check_plain(value: Json, where: str, depth: int = 0) -> None:
    """Refuse what JSON from elsewhere may hold and no file or page can: deep trees, NaN, text that is not Unicode."""
    if depth > _DEEPEST:
        raise BadInputError(f"{where[:200]}: objects and lists are more than {_DEEPEST} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            check_plain(key, where)
            check_plain(item, f"{where}: {key}" if not depth else f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_plain(item, f"{where}[{i}]", depth + 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInputError(f"{where} holds text that is not Unicode: {value!r}") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadInputError(f"{where} is {value}; a record holds finite numbers only")


def dumps(value: Any, where: str, *, indent: int | None = None) -> str:
    """Text of `value`, floats exact to the last bit; `where` is the name an error gives to `value`."""
    return json.dumps(to_plain(value, where), allow_nan=False, ensure_ascii=False, indent=indent)


def canonical(value: Any, where: str) -> str:
    """The one text that all equal values share, whatever the order of their keys."""
    plain = to_plain(value, where)
    return json.dumps(plain, allow_nan=False, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
