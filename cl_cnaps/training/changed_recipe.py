"""A recipe with what the command line says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.config import CnapsConfig, refinement_bounds
from cl_cnaps.recipes import read_toml
from cl_cnaps.training.recipe import Recipe, parse_recipe

_SETTINGS = ("metric", "variant")
_BOUNDS = ("refine_min", "refine_max")


def read_changed_recipe(path: Path, changes: Mapping[str, Any]) -> Recipe:
    """The recipe in a file, with changes by the names of options; None is no change.

    Changed settings of the model become part of the recipe's name: its run has a folder, and its weights a name, of
    their own.
    """
    content, given = read_toml(path), {key: value for key, value in changes.items() if value is not None}
    plain = parse_recipe(content, path.name, path.stem)
    settings = {key: given.pop(key) for key in _SETTINGS if key in given}
    recipe = _with_settings(content, settings, path)
    least, most = (given.pop(key, None) for key in _BOUNDS)
    if (least, most) != (None, None):
        model = recipe.model
        if not model.refines:
            raise BadInputError(
                "--refine-min and --refine-max are for models that refine, not for "
                f"{model.model if model.variant == 'plain' else model.variant}"
            )
        least, most = refinement_bounds(least, most, (model.refine_min, model.refine_max))
        settings |= {"refine_min": least, "refine_max": most}
        recipe = _with_settings(content, settings, path)
    if (tasks := given.pop("tasks", None)) is not None:
        recipe = replace(recipe, training=replace(recipe.training, tasks=tasks))
    name = "-".join((recipe.name, *_differences(plain.model, recipe.model)))
    return replace(recipe, name=name, **given)


def _with_settings(content: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> Recipe:
    """Read anew, since a variant may decide the model, and the model what is usual."""
    changed = {**content, "model": {**content.get("model", {}), **settings}}
    return parse_recipe(changed, path.name, path.stem)


def _differences(plain: CnapsConfig, changed: CnapsConfig) -> list[str]:
    words = [str(getattr(changed, key)) for key in _SETTINGS if getattr(changed, key) != getattr(plain, key)]
    least, most = changed.refine_min, changed.refine_max
    if (least, most) != (plain.refine_min, plain.refine_max):
        words.append(f"refine-{least}-{most}")
    return words
