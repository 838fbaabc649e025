"""From a training's best weights to the file that is used and given away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cl_cnaps.models.weights import WeightFile, load_weights, save_weights

BEST = "best.safetensors"
"""The weights of the best validation so far, in full precision."""

WEIGHTS = "weights.safetensors"


def export(folder: Path, more: Mapping[str, Any]) -> WeightFile:
    """The best weights in half precision, with all that is known of their making and `more`."""
    model, file = load_weights(folder / BEST)
    return save_weights(folder / WEIGHTS, model, {**file.training, **more}, dtype=torch.float16)
