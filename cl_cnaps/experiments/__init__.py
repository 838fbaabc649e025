"""The four kinds of experiment: streams, few-shot evaluation, active learning, ablations.

`KINDS` names them by the verb of the command line; a kind is loaded when it is first used, since loading one loads
PyTorch.
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
