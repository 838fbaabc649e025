"""TOML tables to frozen dataclasses: every key known, every value of its type, errors that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cl_cnaps.errors import BadInputError

T = TypeVar("T")


def from_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """The dataclass `kind` with the values of `table`; `where` is what errors call the table."""
    if not isinstance(table, Mapping):
        raise BadInputError(f"{where} must be a table, got {table!r}")
    return kind(**checked(kind, table, where))


def checked(
    kind: type, table: Mapping[str, Any], where: str, *, elsewhere: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The values of `table` converted to the types of the fields of `kind`; missing or unknown keys are refused.

    Fields in `elsewhere` are known, but their values are read by the caller.
    """
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
    unknown = [key for key in table if key not in known]
    if unknown:
        raise BadInputError(f"{where} has an unknown key {unknown[0]!r}; known are {', '.join(known)}")
    missing = [
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING and name not in (*table, *elsewhere)
    ]
    if missing:
        raise BadInputError(f"{where} lacks the key {missing[0]!r}")
    hints = get_type_hints(kind)
    return {key: _value(hints[key], value, f"{where}.{key}") for key, value in table.items()}


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        first, *others = (a for a in arguments if a is not NoneType)
        words = [word for other in others if get_origin(other) is Literal for word in get_args(other)]
        if value in words:
            return value
        try:
            return _value(first, value, where)
        except BadInputError as error:
            raise BadInputError(f"{error}" + (f"; or one of {', '.join(words)}" if words else "")) from None
    if origin is Literal:
        if value not in arguments:
            raise BadInputError(f"{where} must be one of {', '.join(map(repr, arguments))}, got {value!r}")
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return from_table(hint, value, where)
    if origin is tuple:
        return _tuple(arguments, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise BadInputError(f"{where} must be {_WORDS[hint]}, got {value!r}")
    return value


def _tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise BadInputError(f"{where} must be a list, got {value!r}")
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise BadInputError(f"{where} must have {len(arguments)} entries, got {len(value)}")
    return tuple(
        _value(hint, item, f"{where}[{i}]")
        for i, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


_WORDS: Mapping[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
