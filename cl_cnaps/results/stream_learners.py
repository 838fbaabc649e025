"""What learns a stream: a CNAPS model or a baseline, made anew for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cl_cnaps.continual.baselines import BASELINES, make_baseline
from cl_cnaps.continual.baselines.closed_form_settings import FirstSessionSettings
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.stream import Learner, Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.kept_features import KeptBatches
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.results.stream_asked import StreamRun


@dataclass(frozen=True)
class LearnerMaker:
    """Makes a learner for each run, and says what it is made of."""

    learner: Callable[[Stream, int], Learner]
    image_size: int
    settings: Mapping[str, Any]
    backbone: str
    weights_source: str
    weights_digest: str | None
    backbone_digest: str | None
    pretraining: str
    adaptation: str


def learner_maker(asked: StreamRun, keep: Path | None = None) -> LearnerMaker:
    """What makes the learners of an experiment, its model loaded; features are kept in the folder `keep`, if any."""
    return _cnaps(asked, keep) if asked.model in MODELS else _baseline(asked, keep)


def _cnaps(asked: StreamRun, keep: Path | None) -> LearnerMaker:
    loaded = asked.load(asked.adaptation)
    model = loaded.model
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    def learner(stream: Stream, _run: int) -> Learner:
        return CnapsLearner(stream, model, asked.encoding, asked.query_scope, _kept(keep, model))

    settings: dict[str, Any] = {"encoding": asked.encoding, "model_config": model.config.as_json()}
    if model.config.refines:
        settings["query_scope"] = asked.query_scope
    return _maker(loaded, learner, settings)


def _kept(keep: Path | None, model: CnapsModel) -> KeptBatches | None:
    return None if keep is None else KeptBatches.under(keep, model)


def _baseline(asked: StreamRun, keep: Path | None) -> LearnerMaker:
    info = BASELINES[asked.model]
    on = asked.baseline_on or info.inputs[0]
    if keep is not None and on != "features":
        raise BadInputError(f"--keep-features is for what embeds images; {asked.model} on {on} does not")
    # Baselines see the same images at the same size, whether or not they use the backbone.
    loaded = replace(asked, model="simple").load("film" if asked.features == "adapted" else "none")
    model = loaded.model
    with quiet_avalanche():
        import cl_cnaps.continual.baselines.build  # noqa: F401  # now, so that no run's seconds have it in them
        from cl_cnaps.continual.baselines.features import cnaps_features, first_session_features

    def learner(stream: Stream, run: int) -> Learner:
        seed = asked.seed * 1_000_003 + run
        features = None
        if on == "features":
            kept, first = _kept(keep, model), stream.tasks[0]
            make = (
                first_session_features(model, info.defaults, seed, kept)
                if isinstance(info.defaults, FirstSessionSettings)
                else cnaps_features(model, kept)
            )
            features = make(first.support_images, first.support_labels)
        return make_baseline(asked.model, stream, on=on, features=features, seed=seed, device=model.device)

    maker = _maker(loaded, learner, {"encoding": None, "baseline_on": on, "baseline": asdict(info.defaults)})
    return (
        maker
        if on == "features"
        else replace(
            maker,
            backbone="none",
            weights_source="none: trained on the stream",
            backbone_digest=None,
            pretraining="none",
        )
    )


def _maker(
    loaded: LoadedModel, learner: Callable[[Stream, int], Learner], settings: Mapping[str, Any]
) -> LearnerMaker:
    info = loaded.model.backbone.info
    return LearnerMaker(
        learner,
        info.image_size,
        settings,
        info.name,
        f"{loaded.weights_source}; backbone {info.name} from {info.weights_source}",
        loaded.weights_digest,
        loaded.model.backbone.digest(),
        info.pretraining,
        loaded.model.config.adaptation,
    )
