"""The names of this project, as the command line, recipes, records and tables use them; imports no PyTorch.

A mapping gives each name its title: what a paper would write. Its order is that of tables and help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cl_cnaps.errors import BadInputError

ModelName = Literal["simple", "transductive", "cnaps", "protonet"]
Variant = Literal["plain", "gmm", "gmm-em", "feot", "cot", "plus"]

CNAPS_MODELS: Mapping[str, str] = {
    "simple": "Simple CNAPS",
    "transductive": "Transductive CNAPS",
    "cnaps": "CNAPS",
    "protonet": "ProtoNet",
}
BASELINES: Mapping[str, str] = {
    "naive": "Naive",
    "joint": "Joint",
    "replay": "Replay",
    "ewc": "EWC",
    "si": "SI",
    "rwalk": "RWalk",
    "vcl": "VCL",
    "lwf": "LwF",
    "slda": "SLDA",
    "ncm": "NCM",
    "fecam": "FeCAM",
    "simplecil": "SimpleCIL",
    "lda": "LDA",
    "lda-cv": "LDA, held-out shrinkage",
    "ridge": "Ridge",
    "ranpac": "RanPAC",
    "acil": "ACIL",
    "klda": "KLDA",
    "randumb": "RanDumb",
    "fsa-film": "FSA-FiLM",
    "joint-probe": "Joint linear probe",
    "pixel-ncm": "pixel-ncm",
}
METRICS: Mapping[str, str] = {
    "mahalanobis": "squared Mahalanobis",
    "root-riemannian": "root Riemannian",
    "euclidean": "squared Euclidean",
    "l1": "L1",
    "cosine": "cosine",
    "dot": "negative dot product",
    "fit-qda": "FiT QDA",
    "fit-lda": "FiT LDA",
}
ENCODINGS = ("moving", "first", "averaging")
"""Of the task along a stream, in the order of the paper's table."""
HEADS = ("multi", "single")
"""In the order of the paper's table."""
BENCHMARKS = (
    "split-mnist",
    "split-cifar10",
    "split-cifar100",
    "split-fashion-mnist",
    "split-omniglot",
    "split-mini-imagenet",
    "fscil-cifar100",
    "fscil-mini-imagenet",
    "fscil-cub",
    "permuted-mnist",
    "rotated-mnist",
    "mixed-domains",
    "mixed-offline",
)
PAPER_BENCHMARKS: Mapping[str, str] = {
    "split-mnist": "MNIST",
    "split-cifar10": "CIFAR-10",
    "split-cifar100": "CIFAR-100",
}
"""The columns of `tab:continual-learning-results-table`."""
MEASURES: Mapping[str, str] = {
    "final": "final_accuracy",
    "images": "image_accuracy",
    "forgetting": "forgetting",
    "backward": "backward_transfer",
    "forward": "forward_transfer",
    "learning": "learning_accuracy",
    "incremental": "average_incremental_accuracy",
    "incremental-images": "incremental_image_accuracy",
    "drop": "performance_drop",
    "base": "base_accuracy",
    "novel": "novel_accuracy",
    "harmonic": "harmonic_accuracy",
    "calibration": "calibration_error",
    "nll": "negative_log_likelihood",
    "seconds": "seconds",
    "memory": "memory_bytes",
}
"""Of a stream: the names of columns, and their keys in rows of records."""
STRATEGIES: Mapping[str, str] = {
    "random": "random",
    "entropy": "predictive entropy",
    "variation-ratio": "variation ratio",
}
"""Of active learning."""
RESPONSIBILITIES = ("auto", "raw", "calibrated")
"""Of queries in the refinement."""
MODULATIONS = ("own", "static", "swapped")
"""Whose encoding FiLM is generated from."""
COVARIANCES = ("seen", "task")
"""Which classes the shared part of a class's covariance is of."""
ABLATIONS: Mapping[str, str] = {
    "adaptation": "Does the adaptation adapt",
    "metric": "Metric",
    "gmm": "Gaussian mixtures",
    "transduction": "Parts of transduction",
    "refinement": "Steps of refinement",
    "shots": "Class recall against shots",
    "queries": "Accuracy against queries",
}
FEATURES: Mapping[str, str] = {"film": "adapted features", "none": "frozen features"}
"""By the adaptation that makes them."""


@dataclass(frozen=True)
class VariantInfo:
    """Whose variant it is, and what it changes."""

    model: ModelName
    title: str
    """The paper's name of it."""
    meaning: str


VARIANTS: Mapping[str, VariantInfo] = {
    "gmm": VariantInfo("simple", "GMM", "logits of a Gaussian mixture"),
    "gmm-em": VariantInfo("transductive", "GMM-EM", "logits and responsibilities of a Gaussian mixture"),
    "feot": VariantInfo(
        "transductive", "FEOT", "transductive in feature extraction only: the LSTM encoding, no refinement"
    ),
    "cot": VariantInfo(
        "transductive", "COT", "transductive in classification only: refinement, Simple CNAPS's encoding"
    ),
    "plus": VariantInfo("transductive", "Transductive+", "trained through the refinement"),
}
"""All but `plain`, the model itself."""


def chosen_model(model: str | None, variant: str | None) -> str:
    """The model that is meant: the one named, else that of the variant, else Simple CNAPS."""
    if variant is None or variant == "plain":
        return model or "simple"
    if variant not in VARIANTS:
        raise BadInputError(f"unknown variant {variant!r}; there are plain, {', '.join(VARIANTS)}")
    its_own = VARIANTS[variant].model
    if model is not None and model != its_own:
        raise BadInputError(
            f"{variant} is a variant of the model {its_own}, not of {model}: leave the model out, or the variant"
        )
    return its_own


def refines(model: str, variant: str | None) -> bool:
    """Whether queries take part in the classes."""
    return model == "transductive" and variant != "feot"


def weights_model(model: ModelName, variant: str | None) -> ModelName:
    """The model whose weights serve: a variant's own, but for those that have Simple CNAPS's features."""
    return "simple" if model == "protonet" or variant == "cot" else model
