"""The one list of baselines, and the function that makes any of them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cl_cnaps.continual.baselines.settings import (
    ClosedFormSettings,
    CosineHead,
    DiscriminantHead,
    EwcSettings,
    FecamSettings,
    FirstSessionSettings,
    FourierMap,
    LwfSettings,
    NcmSettings,
    NetworkSettings,
    OwnSettings,
    ProbeSettings,
    ReluMap,
    ReplaySettings,
    RidgeHead,
    RwalkSettings,
    Settings,
    SiSettings,
    SldaSettings,
    VclSettings,
    with_changes,
)
from cl_cnaps.errors import BadInputError
from cl_cnaps.names import CNAPS_MODELS

if TYPE_CHECKING:
    import torch

    from cl_cnaps.continual.baselines.inputs import FeatureFunction
    from cl_cnaps.continual.stream import Learner, Stream

Inputs = Literal["features", "network"]
"""What a baseline reads: the frozen backbone's features, or the images at the small network's size."""


@dataclass(frozen=True)
class BaselineInfo:
    """A baseline: what it does, whose it is, what it reads, and its default settings."""

    help: str
    citation: str
    inputs: tuple[Inputs, ...]
    """What it can run on; the first is the usual choice."""
    defaults: Settings


_EITHER: tuple[Inputs, ...] = ("features", "network")

_ALL: dict[str, BaselineInfo] = {
    "naive": BaselineInfo(
        "Fine-tune on each task in turn; nothing is done against forgetting.",
        "the lower bound",
        _EITHER,
        NetworkSettings(),
    ),
    "joint": BaselineInfo(
        "At every step train a new network on all tasks so far; keeps every image.",
        "the upper bound",
        _EITHER,
        NetworkSettings(),
    ),
    "replay": BaselineInfo(
        "Mix each batch with images kept from earlier tasks.",
        "Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019",
        _EITHER,
        ReplaySettings(),
    ),
    "ewc": BaselineInfo(
        "Hold weights back by their Fisher information (elastic weight consolidation).",
        "Kirkpatrick et al., Overcoming Catastrophic Forgetting in Neural Networks, PNAS 2017",
        _EITHER,
        EwcSettings(),
    ),
    "si": BaselineInfo(
        "Hold weights back by what they contributed to the falling loss (synaptic intelligence).",
        "Zenke, Poole and Ganguli, Continual Learning Through Synaptic Intelligence, ICML 2017",
        _EITHER,
        SiSettings(),
    ),
    "rwalk": BaselineInfo(
        "Hold weights back by Fisher information and path scores together (Riemannian walk).",
        "Chaudhry et al., Riemannian Walk for Incremental Learning, ECCV 2018",
        _EITHER,
        RwalkSettings(),
    ),
    "vcl": BaselineInfo(
        "A Gaussian over every weight; each task's posterior is the next one's prior.",
        "Nguyen et al., Variational Continual Learning, ICLR 2018",
        _EITHER,
        VclSettings(),
    ),
    "lwf": BaselineInfo(
        "Distil the previous network's outputs on the new images (learning without forgetting).",
        "Li and Hoiem, Learning without Forgetting, ECCV 2016",
        _EITHER,
        LwfSettings(),
    ),
    "slda": BaselineInfo(
        "Streaming linear discriminant analysis: class means and one running covariance, OAS shrinkage.",
        "Hayes and Kanan, Lifelong Machine Learning with Deep Streaming LDA, CVPR Workshops 2020",
        ("features",),
        SldaSettings(),
    ),
    "ncm": BaselineInfo(
        "Nearest class mean of the features.",
        "Mensink et al., Distance-Based Image Classification, TPAMI 2013",
        ("features",),
        NcmSettings(),
    ),
    "fecam": BaselineInfo(
        "Mahalanobis distance with one shrunk covariance per class.",
        "Goswami et al., FeCAM, NeurIPS 2023",
        ("features",),
        FecamSettings(),
    ),
    "simplecil": BaselineInfo(
        "The class mean with the largest cosine.",
        "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024",
        ("features",),
        ClosedFormSettings(head=CosineHead()),
    ),
    "lda": BaselineInfo(
        "Linear discriminant analysis: class means and one covariance, OAS shrinkage.",
        "Chen et al., Shrinkage Algorithms for MMSE Covariance Estimation, TSP 2010",
        ("features",),
        ClosedFormSettings(),
    ),
    "lda-cv": BaselineInfo(
        "Linear discriminant analysis; its shrinkage is chosen on held-out support images.",
        "Friedman, Regularized Discriminant Analysis, JASA 1989",
        ("features",),
        ClosedFormSettings(head=DiscriminantHead(shrinkage="held-out")),
    ),
    "ridge": BaselineInfo(
        "Ridge regression onto the classes; its strength is chosen on held-out support images.",
        "Hoerl and Kennard, Ridge Regression, Technometrics 1970",
        ("features",),
        ClosedFormSettings(head=RidgeHead()),
    ),
    "ranpac": BaselineInfo(
        "Ridge regression on 10,000 random ReLU features (RanPAC, without tuning the backbone).",
        "McDonnell et al., RanPAC, NeurIPS 2023",
        ("features",),
        ClosedFormSettings(map=ReluMap(), head=RidgeHead()),
    ),
    "acil": BaselineInfo(
        "Ridge regression of strength 0.1 on 8,192 random ReLU features (analytic class-incremental learning).",
        "Zhuang et al., ACIL, NeurIPS 2022",
        ("features",),
        ClosedFormSettings(map=ReluMap(width=8192, draw="uniform"), head=RidgeHead(strength=0.1)),
    ),
    "klda": BaselineInfo(
        "LDA on 5,000 random Fourier features; their gamma is chosen on held-out support images.",
        "Momeni et al., Continual Learning Using a Kernel-Based Method over Foundation Models, AAAI 2025",
        ("features",),
        ClosedFormSettings(map=FourierMap(width=5000, gamma="held-out")),
    ),
    "randumb": BaselineInfo(
        "LDA on 10,000 random Fourier features, OAS shrinkage.",
        "Prabhu et al., RanDumb, NeurIPS 2024",
        ("features",),
        ClosedFormSettings(map=FourierMap()),
    ),
    "fsa-film": BaselineInfo(
        "FiLM tuned by gradient steps on the first task; then LDA with S + I.",
        "Panos et al., First Session Adaptation, ICCV 2023",
        ("features",),
        FirstSessionSettings(),
    ),
    "joint-probe": BaselineInfo(
        "Logistic regression on the features of all tasks so far, which it keeps: an upper bound.",
        "the upper bound of a linear head",
        ("features",),
        ProbeSettings(),
    ),
    "pixel-ncm": BaselineInfo(
        "Nearest class mean of the raw pixels: what is there without any network.",
        "Mensink et al., Distance-Based Image Classification, TPAMI 2013",
        ("network",),
        NcmSettings(normalise=False),
    ),
}

BASELINES: Mapping[str, BaselineInfo] = MappingProxyType(_ALL)
"""By name: those of this package, and those registered with `baseline`."""

OWN: dict[str, Callable[[int], Any]] = {}
"""What makes the classifier of a registered baseline from a seed."""

_Maker = TypeVar("_Maker", bound=Callable[[int], Any])


def baseline(name: str) -> Callable[[_Maker], _Maker]:
    """Register a classifier on features under a name, for `cl-cnaps stream --model NAME` and recipes.

    What is registered is called with a seed and returns an object with

        learn(features_ND, columns_N)   one task: features and class columns, counted from 0 over the whole stream
        scores(features_ND)             N x C scores of all columns up to the largest learned; larger is better

    It may have `memory_bytes()`; without it, its attributes that are tensors or arrays are counted.
    """

    def register(make: _Maker) -> _Maker:
        if name in BASELINES or name in CNAPS_MODELS:
            raise BadInputError(f"there is a model called {name!r} already")
        help_ = (inspect.getdoc(make) or name).splitlines()[0]
        try:
            source = hashlib.sha256(inspect.getsource(make).encode()).hexdigest()[:12]
        except (OSError, TypeError):  # made where there is no file, as in an interactive session
            source = ""
        _ALL[name] = BaselineInfo(help_, "registered in Python", ("features",), OwnSettings(name, source))
        OWN[name] = make
        return make

    return register


def make_baseline(
    name: str,
    stream: Stream,
    *,
    on: Inputs,
    features: FeatureFunction | None,
    seed: int,
    device: torch.device,
    **settings: Any,
) -> Learner:
    """A baseline ready to learn the first task of `stream`.

    Support images are embedded here, once; query images when they are first predicted, once.

    Args:
        name: A key of `BASELINES`.
        stream: The tasks, with their images.
        on: Read the backbone's features or the images themselves.
        features: N x 3 x H x W uint8 images to N x D features; needed with ``on="features"`` alone.
        seed: Fixes initial weights, batches, the replay memory and weight samples.
        device: Where networks are trained and scores computed.
        **settings: Fields of the baseline's settings to change.
    """
    info = BASELINES.get(name)
    if info is None:
        raise BadInputError(f"no baseline {name!r}; there are {', '.join(BASELINES)}")
    if on not in info.inputs:
        raise BadInputError(
            f"baseline {name!r} does not run on {on!r}; it runs on {' or '.join(info.inputs)}"
        )
    chosen = with_changes(name, info.defaults, settings)
    architecture = chosen.architecture if isinstance(chosen, NetworkSettings) else "auto"

    from cl_cnaps.continual.batches import quiet_avalanche

    with quiet_avalanche():
        from cl_cnaps.continual.baselines.feature_strategy import FeatureLearner
        from cl_cnaps.continual.baselines.inputs import StreamInputs, feature_view, image_view, is_grey
        from cl_cnaps.continual.baselines.network_learner import JointLearner, NetworkLearner, make_network
        from cl_cnaps.continual.baselines.statistics import (
            FecamLearner,
            NearestMeanLearner,
            StreamingLdaLearner,
        )

        grey = False
        if on == "features":
            if features is None:
                raise BadInputError(f"baseline {name!r} on features needs a feature function")
            if architecture != "auto":
                raise BadInputError(
                    f"architecture {architecture!r} is for on='network'; features have one head"
                )
            inputs = StreamInputs(stream, feature_view(features))
        else:
            grey = is_grey(stream) if architecture == "auto" else architecture == "mlp"
            inputs = StreamInputs(stream, image_view(grey))
        match chosen:
            case NetworkSettings():
                network = make_network(inputs, on == "features", grey, chosen.hidden)
                kind = JointLearner if name == "joint" else NetworkLearner
                return kind(name, inputs, network, chosen, seed, device)
            case SldaSettings():
                return StreamingLdaLearner(name, inputs, chosen, seed, device)
            case FecamSettings():
                return FecamLearner(name, inputs, chosen, seed, device)
            case ClosedFormSettings() | ProbeSettings() | OwnSettings():
                return FeatureLearner(name, inputs, chosen, seed, device)
            case NcmSettings():
                return NearestMeanLearner(name, inputs, chosen, seed, device)
            case _:
                raise BadInputError(f"no learner for settings {chosen!r}")
