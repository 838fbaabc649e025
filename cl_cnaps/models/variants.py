"""Named variants of the models: what the paper's ablations change, each a setting and none a copy of a model.

Light to import, so that the command line can use it without waiting for PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cl_cnaps.errors import BadInputError

ModelName = Literal["simple", "transductive", "cnaps", "protonet"]
Variant = Literal["plain", "gmm", "gmm-em", "feot", "cot", "plus"]


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
