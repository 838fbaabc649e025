"""From a name and settings to a learner."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from cl_cnaps.continual.baselines.closed_form_settings import ClosedFormSettings, ProbeSettings
from cl_cnaps.continual.baselines.feature_strategy import FeatureLearner
from cl_cnaps.continual.baselines.fecam import FecamLearner
from cl_cnaps.continual.baselines.inputs import (
    FeatureFunction,
    StreamInputs,
    feature_view,
    image_view,
    is_grey,
)
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.nearest_mean import NearestMeanLearner
from cl_cnaps.continual.baselines.network_learner import JointLearner, NetworkLearner
from cl_cnaps.continual.baselines.networks import Cnn, FeatureHead, Mlp
from cl_cnaps.continual.baselines.registry import Inputs
from cl_cnaps.continual.baselines.settings import (
    FecamSettings,
    NcmSettings,
    NetworkSettings,
    Settings,
    SldaSettings,
)
from cl_cnaps.continual.baselines.streaming_lda import StreamingLdaLearner
from cl_cnaps.continual.stream import Stream
from cl_cnaps.errors import BadInputError


def learner(
    name: str,
    stream: Stream,
    *,
    on: Inputs,
    features: FeatureFunction | None,
    seed: int,
    device: torch.device,
    settings: Settings,
) -> BaselineLearner:
    """The learner of `make_baseline`, once its arguments have been checked against the list of baselines."""
    grey = False
    if on == "features":
        if features is None:
            raise BadInputError(f"baseline {name!r} on features needs a feature function")
        if isinstance(settings, NetworkSettings) and settings.architecture != "auto":
            raise BadInputError(
                f"architecture {settings.architecture!r} is for on='network'; features have one head"
            )
        inputs = StreamInputs(stream, feature_view(features))
    else:
        grey = _reads_grey(stream, settings)
        inputs = StreamInputs(stream, image_view(grey))

    match settings:
        case NetworkSettings():
            make_network = _network(inputs, on, grey, settings.hidden)
            kind = JointLearner if name == "joint" else NetworkLearner
            return kind(name, inputs, make_network, settings, seed, device)
        case SldaSettings():
            return StreamingLdaLearner(name, inputs, settings, seed, device)
        case FecamSettings():
            return FecamLearner(name, inputs, settings, seed, device)
        case ClosedFormSettings() | ProbeSettings():
            return FeatureLearner(name, inputs, settings, seed, device)
        case NcmSettings():
            return NearestMeanLearner(name, inputs, settings, seed, device)
        case _:
            raise BadInputError(f"no learner for settings {settings!r}")


def _reads_grey(stream: Stream, settings: Settings) -> bool:
    if isinstance(settings, NetworkSettings) and settings.architecture != "auto":
        return settings.architecture == "mlp"
    return is_grey(stream)


def _network(inputs: StreamInputs, on: Inputs, grey: bool, hidden: int) -> Callable[[], nn.Module]:
    n_classes = len(inputs.class_ids)
    if on == "features":
        n_features = inputs.support[0].shape[1]
        return lambda: FeatureHead(n_features, n_classes, hidden)
    return lambda: Mlp(n_classes, hidden) if grey else Cnn(n_classes, hidden)
