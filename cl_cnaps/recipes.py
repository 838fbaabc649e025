"""Recipes: TOML files of sweeps and trainings, found by name or path, built on one another, read with care.

The recipes of this project are the files under benchmarks/ of the repository. The build puts them into the package, so
that `cl-cnaps metatrain small` works wherever it is installed.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.paths import MAX_TEXT_BYTES, below, read_file

_PACKAGE = Path(__file__).parent
_DEEPEST = 16  # no recipe has more than four
_LONGEST_CHAIN = 8


def recipe_folder() -> Path:
    """Return the folder of the project's recipes: in the package as installed, or of the checkout that it runs from."""
    installed = _PACKAGE / "benchmarks"
    return installed if installed.is_dir() else _PACKAGE.parent / "benchmarks"


def recipes() -> dict[str, Path]:
    """Return the project's recipes by name: the path below benchmarks/ without its suffix, such as training/small."""
    folder = recipe_folder()
    files = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.relative_to(folder).parts), path))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def find_recipe(text: str) -> Path:
    """Return the file of a recipe that is given as a path or by name; of a name its last part is enough.

    Outside a checkout a path such as benchmarks/continual.toml is that of the recipe in the package.
    """
    path = Path(text)
    return path if path.exists() and not path.is_dir() else _named(text)


def _named(text: str) -> Path:
    known = recipes()
    name = text.removeprefix("./").removeprefix("benchmarks/").removesuffix(".toml")
    found = [file for key, file in known.items() if name in (key, key.rpartition("/")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(key for key, file in known.items() if file in found)
        raise BadInputError(f"there are several recipes {text!r}: {names}")
    raise MissingDataError(
        f"there is no recipe {text}: neither a file, nor one of those that `cl-cnaps recipes list` shows"
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a recipe; with a key `base`, that of the file beside it or recipe of this name, changed.

    Tables are merged key by key; what else the recipe has stands in place of the base's.
    """
    return _resolved(path, 0)


def _resolved(path: Path, depth: int) -> dict[str, Any]:
    if not path.exists():
        raise MissingDataError(
            f"there is no recipe {path}; `cl-cnaps recipes list` shows those of this project"
        )
    data = read_file(path, MAX_TEXT_BYTES)
    with foreign(str(path), "not TOML"):
        content = tomllib.loads(data.decode())
    check_values(content, path.name)
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise BadInputError(f"{path.name}: base must be the name of a file, got {base!r}")
    if depth >= _LONGEST_CHAIN:
        raise BadInputError(f"{path.name}: more than {_LONGEST_CHAIN} recipes are built on each other")
    beside = below(path.parent, base)
    return _merged(_resolved(beside if beside.exists() else _named(base), depth + 1), content)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], value) if isinstance(value, dict) and isinstance(base[key], dict) else value
        for key, value in changes.items()
        if key in base
    }
    return {**base, **changes, **both}


def check_values(value: Any, where: str, depth: int = 0) -> None:
    """Refuse what no setting can be: empty text, numbers that are infinite or NaN or beyond 64 bits, deep nesting."""
    if depth > _DEEPEST:
        raise BadInputError(
            f"{where[:200]} ...: tables and lists lie more than {_DEEPEST} deep in each other"
        )
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_values(inner, f"{where}: {key}" if not depth else f"{where}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            check_values(inner, f"{where}[{position}]", depth + 1)
    elif isinstance(value, str) and (not value.strip() or "\0" in value):
        raise BadInputError(f"{where} is an empty text; leave the key out for its default")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BadInputError(f"{where} is a whole number of more than 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadInputError(f"{where} is {value}; a finite number is needed")
    elif where.endswith("seed") and isinstance(value, int) and value < 0:
        raise BadInputError(f"{where} is {value}; a seed is not negative")


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
