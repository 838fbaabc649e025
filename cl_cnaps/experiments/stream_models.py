"""The models of a stream: which options apply to which, and how their learners are made.

What concerns baselines alone is in `stream_baselines`, which is imported when one is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.plans import StreamPlan
from cl_cnaps.continual.stream import Learner, Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.base import Row, load, model_row
from cl_cnaps.experiments.options import StreamOptions
from cl_cnaps.features.kept import FeatureStore, KeptBatches, SharedFeatures
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import refines

if TYPE_CHECKING:
    from cl_cnaps.data.feature_files import FeatureSource


def each_model(config: StreamOptions) -> list[StreamOptions]:
    """Return a config for each model, with the options that concern it; an option that concerns none is refused."""
    names = (config.model,) if isinstance(config.model, str) else config.model or (config.model_name,)
    for name in names:
        if name not in MODELS:
            from cl_cnaps.experiments.stream_baselines import check_name

            check_name(name)
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
    if name in MODELS:
        found = _not_for_cnaps(config, name)
    else:
        from cl_cnaps.experiments.stream_baselines import without_effect

        found = without_effect(config, name)
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


def on_given_features(config: StreamOptions, keep: Path | None, given: FeatureSource) -> StreamOptions:
    """Return a config for given features; what needs images is refused."""
    holds = f"{given.path} holds features"
    if keep is not None:
        raise BadInputError(f"--keep-features is for images; {holds} already")
    if config.features == "adapted":
        raise BadInputError(f"--features adapted needs images; {holds}, which no network changes any more")
    if config.model in MODELS:
        return config
    from cl_cnaps.experiments.stream_baselines import check_takes_features

    check_takes_features(config, holds)
    return replace(config, baseline_on="features")


def embeds(config: StreamOptions) -> bool:
    """Whether the model of a config embeds images with the backbone."""
    if config.model in MODELS:
        return True
    from cl_cnaps.experiments.stream_baselines import baseline_input

    return baseline_input(config) == "features"


@dataclass(frozen=True)
class LearnerMaker:
    """Makes a learner for each run, and knows what it is made of."""

    learner: Callable[[Stream, int], Learner]
    image_size: int
    settings: Mapping[str, Any]
    """What of the identity only this kind of model has."""
    row: Row
    """What rows have of the model."""
    backbone: str
    weights_source: str
    weights_digest: str | None
    backbone_digest: str | None
    pretraining: str
    adaptation: str


class SharedRun:
    """What the models of one command share: the images of a run, and the features of these under each network."""

    def __init__(self, plan: StreamPlan) -> None:
        self.features = SharedFeatures()
        self._plan = plan
        self._streams: dict[tuple[int, int], Stream] = {}

    def stream(self, run: int, image_size: int) -> Stream:
        """Return the images of a run; those of other runs, and their features, are forgotten."""
        if any(kept != run for kept, _ in self._streams):
            self._streams.clear()
            self.features.clear()
        if (run, image_size) not in self._streams:
            self._streams[run, image_size] = self._plan.stream(run, image_size)
        return self._streams[run, image_size]


class Makers:
    """Loads models; all baselines on the same features have one network."""

    def __init__(self, keep: Path | None, shared: SharedRun | None, features: FeatureSource | None) -> None:
        self._keep = keep
        self._features = features
        self._shared = shared
        self._loaded: dict[str, LoadedModel] = {}

    def make(self, config: StreamOptions) -> LearnerMaker:
        """Load the model of a config with one model and encoding."""
        if config.model in MODELS:
            return self._cnaps(config)
        from cl_cnaps.experiments.stream_baselines import baseline_maker

        # Baselines see the same images at the same size, whether or not they use the backbone.
        adaptation = "film" if config.features == "adapted" else "none"
        if adaptation not in self._loaded:
            simple = replace(config, model="simple")
            self._loaded[adaptation] = load(simple, adaptation, features=self._features)
        return baseline_maker(config, self._loaded[adaptation], self._store)

    def _store(self, model: CnapsModel) -> FeatureStore | None:
        """Return the cache of features: in memory for the models of this command, on disk for later ones."""
        kept = None if self._keep is None else KeptBatches.under(self._keep, model)
        return kept if self._shared is None else self._shared.features.before(kept)

    def _cnaps(self, config: StreamOptions) -> LearnerMaker:
        loaded = load(config, config.adaptation, features=self._features)
        model = loaded.model
        with quiet_avalanche():
            from cl_cnaps.continual.cnaps_learner import CnapsLearner

        def learner(stream: Stream, run: int) -> Learner:
            assert config.encoding is not None
            return CnapsLearner(
                stream,
                model,
                config.encoding,
                config.query_scope,  # type: ignore[arg-type]
                covariance,  # type: ignore[arg-type]
                store,
                memory_rank=config.memory_rank,
                shortlist=config.shortlist,
                batch=config.batch,
                seed=(config.seed * 1_000_003 + run) * len(stream.tasks),
            )

        store = self._store(model)
        covariance = config.covariance or "seen"
        settings: dict[str, Any] = {
            "encoding": config.encoding,
            "covariance": covariance,
            "model_config": model.config.as_json(),
        }
        for name in ("memory_rank", "shortlist", "batch"):
            if (number := getattr(config, name)) is not None:
                settings[name] = number
        if model.config.refines:
            settings["query_scope"] = config.query_scope
        return maker_of(loaded, learner, settings, model_row(model.config))


def maker_of(
    loaded: LoadedModel, learner: Callable[[Stream, int], Learner], settings: Mapping[str, Any], row: Row
) -> LearnerMaker:
    """Return the maker of these learners, with what records have of the model."""
    info = loaded.model.backbone.info
    return LearnerMaker(
        learner,
        info.image_size,
        settings,
        row,
        info.name,
        f"{loaded.weights_source}; backbone {info.name} from {info.weights_source}",
        loaded.weights_digest,
        loaded.model.backbone.digest(),
        info.pretraining,
        loaded.model.config.adaptation,
    )
