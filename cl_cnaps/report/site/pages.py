"""From content to HTML: the templates, which escape whatever they are given.

Jinja rather than strings put together in Python: escaping is then what happens, not what must be remembered, and a
page can be read as the HTML it becomes. A name that a template uses and nobody gave is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import cl_cnaps

ALWAYS = ("theme.js",)
"""Scripts of every page; the first runs before anything is drawn."""


@dataclass(frozen=True)
class Page:
    """One file of the site."""

    path: str
    """Where it is, seen from the site's folder."""
    title: str
    template: str
    content: Mapping[str, Any]
    scripts: Sequence[str] = field(default=())


SECTIONS = (
    ("index.html", "Overview"),
    ("continual.html", "Continual"),
    ("few-shot.html", "Few-shot"),
    ("active.html", "Active"),
    ("ablations.html", "Ablations"),
    ("records.html", "Records"),
)


def render(page: Page) -> str:
    """The page as HTML."""
    return (
        _templates()
        .get_template(page.template)
        .render(
            page=page,
            sections=SECTIONS,
            up="../" * page.path.count("/"),
            version=cl_cnaps.__version__,
            **page.content,
        )
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `tojson` writes <, > and & as escapes, so that no text ends a script element; NaN is no JSON and is refused.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False}
    return environment
