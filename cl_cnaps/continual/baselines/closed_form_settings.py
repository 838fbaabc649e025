"""Methods in closed form as settings: a feature map and a head. Free of PyTorch, so that help stays instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from cl_cnaps.continual.baselines.settings import StatisticsSettings, require

Shrinkage = Literal["oas", "identity"]
"""oas: (1 - s) S + s tr(S)/M I, with the s of oracle approximating shrinkage. identity: S + I."""


@dataclass(frozen=True)
class IdentityMap:
    """The features as they are."""

    kind: Literal["identity"] = "identity"


@dataclass(frozen=True)
class ReluMap:
    """relu(f W) with a fixed random W."""

    kind: Literal["relu"] = "relu"
    width: int = 10_000
    draw: Literal["normal", "uniform"] = "normal"
    """normal: N(0, 1). uniform: as PyTorch draws a linear layer of that size."""

    def __post_init__(self) -> None:
        require(self.width >= 1, "width", self.width, "at least 1")
        require(self.draw in ("normal", "uniform"), "draw", self.draw, "normal or uniform")


@dataclass(frozen=True)
class FourierMap:
    """sqrt(2/M) cos(f W + b): random Fourier features of the kernel exp(-gamma |x - y|^2)."""

    kind: Literal["fourier"] = "fourier"
    width: int = 10_000
    gamma: float | Literal["scale", "held-out"] = "scale"
    """A number; scale: 1 / (D var) of the first task's features, as in scikit-learn; held-out: from 1/64 to 16 times
    that, the least squared error of a ridge regression on five random fifths of the first task's support images."""

    def __post_init__(self) -> None:
        require(self.width >= 1, "width", self.width, "at least 1")
        good = self.gamma in ("scale", "held-out") if isinstance(self.gamma, str) else self.gamma > 0
        require(good, "gamma", self.gamma, "above 0, scale or held-out")


@dataclass(frozen=True)
class CosineHead:
    """The class mean with the largest cosine."""

    kind: Literal["cosine"] = "cosine"


@dataclass(frozen=True)
class RidgeHead:
    """Ridge regression onto one-hot targets."""

    kind: Literal["ridge"] = "ridge"
    strength: float | Literal["held-out", "held-out-last"] = "held-out"
    """A number, or chosen at each task from 10^-8 to 10^8 by the least squared error on held-out support images.
    held-out: a fifth of the images of all tasks so far, of 2,000 at the most. held-out-last: of the last task's, as
    the authors of RanPAC do."""

    def __post_init__(self) -> None:
        rules = ("held-out", "held-out-last")
        good = self.strength in rules if isinstance(self.strength, str) else self.strength > 0
        require(good, "strength", self.strength, f"above 0, {' or '.join(rules)}")


@dataclass(frozen=True)
class DiscriminantHead:
    """Linear discriminant analysis with one covariance for all classes."""

    kind: Literal["discriminant"] = "discriminant"
    shrinkage: Shrinkage = "oas"

    def __post_init__(self) -> None:
        require(
            self.shrinkage in get_args(Shrinkage),
            "shrinkage",
            self.shrinkage,
            f"one of {get_args(Shrinkage)}",
        )


MapSettings = IdentityMap | ReluMap | FourierMap
HeadSettings = CosineHead | RidgeHead | DiscriminantHead


@dataclass(frozen=True)
class ClosedFormSettings(StatisticsSettings):
    """A head on a map of the features."""

    map: MapSettings = field(default_factory=IdentityMap)
    head: HeadSettings = field(default_factory=DiscriminantHead)

    def __post_init__(self) -> None:
        require(isinstance(self.map, MapSettings), "map", self.map, "IdentityMap, ReluMap or FourierMap")
        require(
            isinstance(self.head, HeadSettings),
            "head",
            self.head,
            "CosineHead, RidgeHead or DiscriminantHead",
        )


@dataclass(frozen=True)
class FirstSessionSettings(ClosedFormSettings):
    """FSA-FiLM: gradient steps on FiLM and a linear head on the first task alone; then LDA with S + I."""

    head: HeadSettings = field(default_factory=lambda: DiscriminantHead(shrinkage="identity"))
    steps: int = 50
    batch_size: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "batch_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")


@dataclass(frozen=True)
class ProbeSettings(StatisticsSettings):
    """Logistic regression on the features of all tasks so far, which it keeps."""

    candidates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    """Inverse strengths of the penalty (scikit-learn's C), compared at each step on a fifth of the support images."""

    def __post_init__(self) -> None:
        good = len(self.candidates) > 0 and all(value > 0 for value in self.candidates)
        require(good, "candidates", self.candidates, "one number above 0 or more")
