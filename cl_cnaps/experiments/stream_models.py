"""Which options of a stream apply to which of its models."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from cl_cnaps.continual.baselines import BASELINES
from cl_cnaps.continual.baselines.settings import NetworkSettings
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.options import StreamOptions
from cl_cnaps.models.cnaps import MODELS
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.names import VARIANTS, refines


def each_model(config: StreamOptions) -> list[StreamOptions]:
    """Return a config for each model, with the options that concern it; an option that concerns none is refused."""
    names = (config.model,) if isinstance(config.model, str) else config.model or (config.model_name,)
    for name in names:
        if name not in MODELS and name not in BASELINES:
            raise BadInputError(f"unknown model {name!r}; there are {', '.join([*MODELS, *BASELINES])}")
    every = [replace(config, model=name) for name in dict.fromkeys(names)]
    without = [_without_effect(one) for one in every]
    for name in dict.fromkeys(name for reasons in without for name in reasons):
        if all(name in reasons for reasons in without):
            raise BadInputError(without[0][name])
    unset: dict[str, Any] = {one.name: one.default for one in fields(StreamOptions)}
    return [
        _on_features(replace(one, **{name: unset[name] for name in reasons}))
        for one, reasons in zip(every, without, strict=True)
    ]


def _on_features(config: StreamOptions) -> StreamOptions:
    """Return a config in which --features of a CNAPS model is its adaptation."""
    if config.model not in MODELS or config.features is None:
        return config
    adaptation = "film" if config.features == "adapted" else "none"
    if config.adaptation not in (None, adaptation):
        raise BadInputError(
            f"--features {config.features} and --adaptation {config.adaptation} exclude each other"
        )
    return replace(config, features=None, adaptation=adaptation)


def _without_effect(config: StreamOptions) -> dict[str, str]:
    """Return the options that were given and have no effect on the one model of a config, each with the reason."""
    name = config.model_name if config.model is None else str(config.model)
    found = _not_for_cnaps(config, name) if name in MODELS else _not_for_baseline(config, name)
    variant = None if "variant" in found else config.variant
    refined = refines(name, variant)
    for option in ("refine_min", "refine_max"):
        if not refined and getattr(config, option) is not None:
            of = name if variant is None else f"{name}, variant {variant},"
            found[option] = f"refinement is the transductive model's; {of} has none"
    if config.shortlist is not None and (config.covariance == "task" or refined):
        found.setdefault("shortlist", "--shortlist is for models without refinement, with --covariance seen")
    if config.query_scope == "stream" and (not refined or config.head == "multi"):
        found["query_scope"] = (
            "--query-scope stream is for the single head of the transductive model: models without refinement do not "
            "use the query set as a whole, and the multi head always uses the queries of one task"
        )
    return found


def _not_for_cnaps(config: StreamOptions, name: str) -> dict[str, str]:
    found = {}
    if config.baseline_on is not None:
        found["baseline_on"] = f"--baseline-on is for baselines; {name} always works on its adapted features"
    for setting, value in config.settings.items():
        try:
            CnapsConfig(model=name, **{setting: value})  # type: ignore[arg-type]
        except BadInputError as error:
            found[setting] = str(error)
    if config.responsibilities is not None and not refines(name, config.variant):
        found["responsibilities"] = f"--responsibilities are of the refinement, which {name} does not have"
    return found


def _not_for_baseline(config: StreamOptions, name: str) -> dict[str, str]:
    found = {}
    inputs = BASELINES[name].inputs
    if config.encoding is not None:
        found["encoding"] = f"--encoding is for CNAPS models; the baseline {name} has no task encoding"
    if config.covariance is not None:
        found["covariance"] = f"--covariance is for CNAPS models; the baseline {name} has its own"
    for option in ("memory_rank", "shortlist"):
        if getattr(config, option) is not None:
            found[option] = f"--memory-rank and --shortlist are for CNAPS models, not for the baseline {name}"
    if config.batch is not None and (
        not isinstance(BASELINES[name].defaults, NetworkSettings) or name == "joint"
    ):
        found["batch"] = (
            f"--batch is for CNAPS models and networks that train on the stream; {name} learns whole tasks"
        )
    if config.baseline_on not in (None, *inputs):
        found["baseline_on"] = (
            f"the baseline {name} does not run on {config.baseline_on}, only on {' and '.join(inputs)}"
        )
    network = "network" in (None if "baseline_on" in found else config.baseline_on, inputs[0])
    if config.features is not None and network:
        found["features"] = f"--features is for baselines on features; {name} here trains on images"
    if config.weights is not None and (config.features != "adapted" or network):
        found["weights"] = f"--weights adapt features; the baseline {name} uses them with --features adapted"
    if config.adaptation == "film":
        found["adaptation"] = (
            f"--adaptation film is for CNAPS models; for the baseline {name} it is --features adapted"
        )
    for setting, value in config.settings.items():
        found[setting] = f"--{setting} is for CNAPS models; the baseline {name} has none to choose"
        if setting == "variant" and value in VARIANTS:
            its_own = VARIANTS[value].model
            found[setting] = (
                f"{value} is a variant of the model {its_own}, not of {name}: leave the model out, or the variant"
            )
    return found
