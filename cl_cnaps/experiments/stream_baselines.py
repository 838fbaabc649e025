"""Baselines of a stream: which options apply to them, and how their learners are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from cl_cnaps.continual.baselines import BASELINES, Inputs, make_baseline
from cl_cnaps.continual.baselines.settings import FirstSessionSettings, NetworkSettings
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.stream import Learner, Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.options import SETTINGS, StreamOptions
from cl_cnaps.experiments.stream_models import LearnerMaker, maker_of
from cl_cnaps.features.kept import FeatureStore
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import VARIANTS


def check_name(name: str) -> None:
    """Refuse a model that is no baseline."""
    if name not in BASELINES:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join([*MODELS, *BASELINES])}")


def baseline_input(config: StreamOptions) -> Inputs:
    """Return what a baseline reads."""
    return config.baseline_on or BASELINES[config.model_name].inputs[0]  # type: ignore[return-value]


def check_takes_features(config: StreamOptions, holds: str) -> None:
    """Refuse a baseline that needs images; `holds` names the feature file."""
    info = BASELINES[config.model_name]
    if config.baseline_on == "network" or "features" not in info.inputs:
        raise BadInputError(f"{config.model} on {baseline_input(config)} needs images; {holds}")
    if isinstance(info.defaults, FirstSessionSettings):
        raise BadInputError(f"{config.model} tunes a network on images; {holds}")


def without_effect(config: StreamOptions, name: str) -> dict[str, str]:
    """Return the options that were given and have no effect on a baseline, each with the reason."""
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


def baseline_maker(
    config: StreamOptions, loaded: LoadedModel, store_of: Callable[[CnapsModel], FeatureStore | None]
) -> LearnerMaker:
    """Return the maker of a baseline's learners on the features, or images, of a loaded model."""
    name = config.model_name
    info = BASELINES[name]
    on = baseline_input(config)
    model = loaded.model
    with quiet_avalanche():
        import cl_cnaps.continual.baselines.network_learner
        import cl_cnaps.continual.baselines.statistics  # noqa: F401  # now, so that no run's seconds have it in them
        from cl_cnaps.continual.baselines.feature_strategy import cnaps_features, first_session_features

    def learner(stream: Stream, run: int) -> Learner:
        features = None
        seed = config.seed * 1_000_003 + run
        if on == "features":
            first = stream.tasks[0]
            make = (
                first_session_features(model, info.defaults, seed, store)
                if isinstance(info.defaults, FirstSessionSettings)
                else cnaps_features(model, store)
            )
            features = make(first.support_images, first.support_labels)
        return make_baseline(name, stream, on=on, features=features, seed=seed, device=model.device, **online)

    store = store_of(model) if on == "features" else None
    online = {} if config.batch is None else {"epochs": 1, "batch_size": config.batch}
    settings = {"encoding": None, "baseline_on": on, "baseline": {**asdict(info.defaults), **online}}
    maker = maker_of(loaded, learner, settings, dict.fromkeys(SETTINGS))
    if on == "features":
        return maker
    return replace(
        maker,
        backbone="none",
        weights_source="none: trained on the stream",
        backbone_digest=None,
        pretraining="none",
    )
