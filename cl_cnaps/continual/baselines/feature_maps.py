"""Fixed random maps of features, drawn once before the first task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.continual.baselines.settings import MapSettings, ReluMap


@dataclass(frozen=True)
class FeatureMap:
    """Features N x D to vectors N x M: as they are, relu(f W), or sqrt(2/M) cos(f W + b)."""

    weights_DM: Tensor | None = None
    offsets_M: Tensor | None = None

    def __call__(self, features_ND: Tensor) -> Tensor:
        """Map features."""
        if self.weights_DM is None:
            return features_ND
        projected = features_ND @ self.weights_DM.to(features_ND)
        if self.offsets_M is None:
            return projected.relu_()
        return projected.add_(self.offsets_M.to(projected)).cos_().mul_(math.sqrt(2 / projected.shape[1]))

    def nbytes(self) -> int:
        """Memory taken by what was drawn."""
        kept = [tensor for tensor in (self.weights_DM, self.offsets_M) if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)


def draw_map(settings: MapSettings, features_ND: Tensor, seed: int, gamma: float | None = None) -> FeatureMap:
    """Draw the map for features like these.

    Args:
        settings: which map.
        features_ND: of the first task: their number D, and for `gamma="scale"` their variance.
        seed: decides what is drawn.
        gamma: of random Fourier features, in place of that of the settings.
    """
    if settings.kind == "identity":
        return FeatureMap()
    if settings.kind == "relu":
        return FeatureMap(_projection(settings, features_ND.shape[1], seed))
    from sklearn.kernel_approximation import RBFSampler

    sampler = RBFSampler(
        gamma=settings.gamma if gamma is None else gamma,
        n_components=settings.width,
        random_state=seed % 2**32,
    ).fit(features_ND.cpu().double().numpy())
    weights, offsets = (
        torch.as_tensor(drawn, dtype=torch.float32, device=features_ND.device)
        for drawn in (sampler.random_weights_, sampler.random_offset_)
    )
    return FeatureMap(weights, offsets)


def scale_gamma(features_ND: Tensor) -> float:
    """Return 1 / (D var): what scikit-learn calls the scale of the features."""
    variance = float(features_ND.double().var(unbiased=False))
    return 1 / (features_ND.shape[1] * variance) if variance > 0 else 1.0


def _projection(settings: ReluMap, features: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if settings.draw == "normal":
        return torch.randn(features, settings.width, generator=generator)
    reach = 1 / math.sqrt(features)
    return torch.empty(settings.width, features).uniform_(-reach, reach, generator=generator).T
