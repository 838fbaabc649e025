"""The four kinds of experiment: streams, few-shot evaluation, active learning, ablations.

`KINDS` names them by the verb of the command line; a kind is loaded when it is first used, since loading one loads
PyTorch. `Progress` is how they show that they advance.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cl_cnaps.experiments.base import Experiment

KINDS: Mapping[str, str] = {
    "stream": "stream:StreamExperiment",
    "evaluate": "few_shot:FewShotExperiment",
    "active": "active:ActiveExperiment",
    "ablate": "ablation:AblationExperiment",
}
"""Verb -> module and class."""


def kind(verb: str) -> type[Experiment]:
    """Return the experiment of a verb."""
    module, _, name = KINDS[verb].partition(":")
    found: type[Experiment] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return found


class Progress:
    """Shows how an experiment advances: this one shows nothing, those derived from it do."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start: `done` of `total` steps are finished already."""

    def show(self, state: str, advance: int = 0) -> None:
        """Show what is going on, and advance by some steps."""

    def line(self, text: str) -> None:
        """Show a result that is worth a line."""
