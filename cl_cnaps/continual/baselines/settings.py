"""Settings of every baseline, checked when they are made. Free of PyTorch, so that help stays instant."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

from cl_cnaps.errors import BadInputError

Competing = Literal["present", "seen"]
"""Classes in the training loss: those with images in the data trained on at this step, or all learned so far."""

Architecture = Literal["auto", "mlp", "cnn"]
"""The small network: picked by the images (grey-scale: mlp, colour: cnn), or named."""


@dataclass(frozen=True)
class StatisticsSettings:
    """Settings of a method that does not train a network on each task; each kind adds its own."""


@dataclass(frozen=True)
class NcmSettings(StatisticsSettings):
    """Nearest class mean."""

    normalise: bool = True
    """Scale every feature vector to length one first, as iCaRL does."""


@dataclass(frozen=True)
class SldaSettings(StatisticsSettings):
    """Streaming LDA. Its shrinkage is analytic (OAS), made anew at every task."""


@dataclass(frozen=True)
class FecamSettings(StatisticsSettings):
    """FeCAM: shrinkage of the covariance's diagonal and off-diagonal, and the power transform of the features."""

    shrink_diagonal: float = 1.0
    shrink_off_diagonal: float = 1.0
    tukey: bool = True
    """Take the square root of the features; needs features that are not negative, as after a ReLU."""

    def __post_init__(self) -> None:
        require(self.shrink_diagonal > 0, "shrink_diagonal", self.shrink_diagonal, "above 0")
        found = self.shrink_off_diagonal
        require(0 <= found <= self.shrink_diagonal, "shrink_off_diagonal", found, "from 0 to shrink_diagonal")


@dataclass(frozen=True)
class NetworkSettings:
    """Training of a network with Adam, whose state starts afresh at every task."""

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    hidden: int = 256
    """Units of each hidden dense layer."""
    competing: Competing = "present"
    architecture: Architecture = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "hidden"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(
            self.competing in get_args(Competing),
            "competing",
            self.competing,
            f"one of {get_args(Competing)}",
        )
        known = get_args(Architecture)
        require(self.architecture in known, "architecture", self.architecture, f"one of {known}")


@dataclass(frozen=True)
class ReplaySettings(NetworkSettings):
    """Experience replay from a class-balanced reservoir."""

    memory: int = 200
    """Images kept in all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.memory >= 1, "memory", self.memory, "at least 1")


@dataclass(frozen=True)
class PenaltySettings(NetworkSettings):
    """A method that pulls weights back to where earlier tasks left them."""

    strength: float = 1.0
    """Weight of the penalty in the loss (the papers' lambda, or c for SI)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.strength >= 0, "strength", self.strength, "0 or more")


@dataclass(frozen=True)
class EwcSettings(PenaltySettings):
    """Elastic weight consolidation with one penalty per earlier task."""

    strength: float = 1e5
    """Large because squared gradients of a well-fitted task are tiny."""


@dataclass(frozen=True)
class SiSettings(PenaltySettings):
    """Synaptic intelligence."""

    strength: float = 10.0
    damping: float = 0.1
    """The paper's xi: keeps the importance of weights that hardly moved bounded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.damping > 0, "damping", self.damping, "above 0")


@dataclass(frozen=True)
class RwalkSettings(PenaltySettings):
    """Riemannian walk, without the exemplars that its paper adds for the single head."""

    strength: float = 0.1
    fisher_rate: float = 0.1
    """Weight of the newest mini-batch in the running Fisher information."""
    interval: int = 10
    """Iterations between two updates of the path scores; the last interval of a task may be shorter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.fisher_rate <= 1, "fisher_rate", self.fisher_rate, "above 0 and at most 1")
        require(self.interval >= 1, "interval", self.interval, "at least 1")


@dataclass(frozen=True)
class LwfSettings(PenaltySettings):
    """Learning without forgetting: distillation from the network as the previous task left it."""

    strength: float = 1.0
    temperature: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.temperature > 0, "temperature", self.temperature, "above 0")


@dataclass(frozen=True)
class VclSettings(PenaltySettings):
    """Variational continual learning, mean-field, without a coreset."""

    strength: float = 0.003
    """Weight of the divergence from the previous posterior; 1 is the paper's bound, less is a cold posterior."""
    prior_deviation: float = 1.0
    """Of the first task's prior, relative to the size of a layer's initial weights."""
    initial_deviation: float = 0.3
    """Where the posterior's deviations start, relative to the same."""
    deviation_rate: float = 10.0
    """Learning rate of the log deviations as a multiple of `learning_rate`."""
    samples: int = 10
    """Weight samples averaged in a prediction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prior_deviation", "initial_deviation", "deviation_rate"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require(self.samples >= 1, "samples", self.samples, "at least 1")


Settings = StatisticsSettings | NetworkSettings
_Chosen = TypeVar("_Chosen", bound=Settings)


def with_changes(name: str, defaults: _Chosen, changes: dict[str, Any]) -> _Chosen:
    """`defaults` with some fields changed; a field the method does not have is an error.

    Args:
        name: The baseline, for the message.
        defaults: Its settings.
        changes: Field names and their new values.
    """
    known = [field.name for field in fields(defaults)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        has = ", ".join(known) if known else "none"
        raise BadInputError(f"baseline {name!r} has no setting {', '.join(unknown)}; its settings: {has}")
    return replace(defaults, **changes)


def require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Refuse a setting unless it holds."""
    if not holds:
        raise BadInputError(f"setting {name} must be {wanted}, not {found!r}")


Shrinkage = float | Literal["oas", "held-out", "identity"]
"""The s of (1 - s) S + s tr(S)/M I: a number; oas: by oracle approximating shrinkage; held-out: at each task the one
that gives a fifth of the support images so far the largest likelihood. identity: S + I. Of vectors with more than
2,000 numbers, held-out looks at the first 2,000 images alone."""


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
    held-out: a fifth of the images of all tasks so far. held-out-last: of the last task's, as the authors of RanPAC
    do. Of vectors with more than 2,000 numbers both look at the first 2,000 of these images alone."""

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
        rules = ("oas", "held-out", "identity")
        good = self.shrinkage in rules if isinstance(self.shrinkage, str) else 0 < self.shrinkage <= 1
        require(good, "shrinkage", self.shrinkage, f"above 0, at most 1, or one of {', '.join(rules)}")


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


@dataclass(frozen=True)
class OwnSettings(StatisticsSettings):
    """A classifier on features that was registered in Python (`baselines.baseline`)."""

    name: str = ""
    source: str = ""
    """Digest of its code, so that a record of an older form of it is not taken for this one's."""
