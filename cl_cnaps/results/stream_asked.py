"""What a stream experiment is asked for, and what of it would have no effect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cl_cnaps.continual.baselines import BASELINES
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.planning import Shots
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import MODELS
from cl_cnaps.models.variants import chosen_model, refines
from cl_cnaps.results.model_asked import ModelAsked


@dataclass(frozen=True, kw_only=True)
class StreamRun(ModelAsked):
    """Everything a stream experiment is asked for. None stands for the default of the model or benchmark."""

    benchmark: str = "split-mnist"
    model: str = "simple"
    """A CNAPS model or a baseline."""
    encoding: EncodingName = "first"
    heads: tuple[Head, ...] = ("single", "multi")
    adaptation: Literal["film", "none"] | None = None
    baseline_on: Literal["features", "network"] | None = None
    features: Literal["frozen", "adapted"] | None = None
    """Of baselines on features; None is frozen."""
    query_scope: Literal["task", "stream"] = "task"
    shots: Shots | None = None
    queries: int | None = None
    runs: int = 5
    classes_per_task: int | tuple[int, ...] | None = None
    class_order: tuple[str, ...] | int | None = None
    shuffle_classes: int | None = None
    base_classes: int = 0
    base_shots: Shots | None = None
    lists: Path | None = None
    repeat: int = 0


def check(asked: StreamRun) -> None:
    """Refuse what would have no effect, so that nobody reads a result as that of an option it does not have."""
    if asked.model not in MODELS and asked.model not in BASELINES:
        raise BadInputError(f"unknown model {asked.model!r}; there are {', '.join([*MODELS, *BASELINES])}")
    if asked.runs < 1:
        raise BadInputError(f"at least 1 run is needed, {asked.runs} were asked for")
    if asked.model in MODELS and asked.baseline_on is not None:
        raise BadInputError(
            f"--baseline-on is for baselines; {asked.model} always works on its adapted features"
        )
    if asked.model in MODELS and asked.features is not None:
        raise BadInputError(f"--features is for baselines; for {asked.model} it is --adaptation film or none")
    if asked.model in BASELINES and asked.weights is not None and asked.features != "adapted":
        raise BadInputError(
            f"--weights adapt features; the baseline {asked.model} uses them with --features adapted"
        )
    if asked.features is not None and "network" in (asked.baseline_on, BASELINES[asked.model].inputs[0]):
        raise BadInputError(f"--features is for baselines on features; {asked.model} here trains on images")
    if asked.model in BASELINES and asked.adaptation == "film":
        raise BadInputError(
            f"--adaptation film is for CNAPS models; for the baseline {asked.model} it is --features adapted"
        )
    if asked.model in BASELINES and asked.baseline_on not in (None, *BASELINES[asked.model].inputs):
        raise BadInputError(
            f"the baseline {asked.model} does not run on {asked.baseline_on}, only on "
            f"{' and '.join(BASELINES[asked.model].inputs)}"
        )
    if asked.model in BASELINES and asked.metric is not None:
        raise BadInputError(f"--metric is for CNAPS models; the baseline {asked.model} has none to choose")
    refined = refines(chosen_model(asked.model, asked.variant), asked.variant)
    name = asked.model if asked.variant is None else f"{asked.model}, variant {asked.variant},"
    if not refined and asked.bounds:
        raise BadInputError(f"refinement is the transductive model's; {name} has none")
    if asked.query_scope == "stream" and (not refined or "single" not in asked.heads):
        raise BadInputError(
            "--query-scope stream is for the single head of the transductive model: models without refinement do not "
            "look at the query set as a whole, and the multi head always looks at the queries of one task"
        )
