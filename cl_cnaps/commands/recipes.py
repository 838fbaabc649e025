"""`cl-cnaps recipes`: the recipes of this project, by name."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import echo


@click.group()
def recipes() -> None:
    """List and show the recipes that `sweep`, `metatrain` and `pretrain` take by name."""


@recipes.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """Show all recipes: the words after `cl-cnaps` that run each, and what it is for."""
    from cl_cnaps.recipes import recipes as every

    facts = [_facts(name) for name in every()]
    if as_json:
        for one in facts:
            echo(json.dumps(one))
        return
    width = max(len(one["command"]) for one in facts)
    for one in facts:
        echo(f"{one['command']:{width}}  {one['title']}")
    echo("\n`cl-cnaps recipes show NAME` prints one; `cl-cnaps metatrain` alone is `metatrain small`.")


@recipes.command()
@click.argument("name", default="simple-efficientnet-lite0")
@options.as_json
def show(name: str, as_json: bool) -> None:
    """Print a recipe as it is written; with --json as it is run, what it is built on taken in."""
    from cl_cnaps.recipes import find_recipe, read_toml

    path = find_recipe(name)
    content = read_toml(path)  # also refuses a file that is no recipe
    echo(json.dumps(content) if as_json else path.read_text(encoding="utf-8").rstrip())


def _facts(name: str) -> dict[str, Any]:
    """Return name, command and title of a recipe; the title is the beginning of its head's first sentence."""
    from cl_cnaps.recipes import find_recipe, read_toml

    path = find_recipe(name)
    content = read_toml(path)
    verb = "sweep" if "verb" in content else "pretrain" if "source" in content else "metatrain"
    head = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line in ("", "#") or not line.startswith("#"):
            break
        head.append(line.lstrip("# "))
    short = name.rpartition("/")[2]
    title = re.split(r"[.:;,] |\.$| \(", " ".join(head), maxsplit=1)[0]
    return {"name": name, "command": f"{verb} {short}", "title": title, "file": str(path)}
