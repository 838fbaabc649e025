"""Task encoders: from the images of a task to one vector (fig:feature-extraction-procedure-overview).

g_theta in the paper; d_theta, which encodes one image, is here `SetEncoder` (the paper's) or `BackboneSetEncoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import Backbone, channel_axis

ENCODING_WIDTH = 64

SMALLEST_IMAGE = 32
"""Side of the smallest image that can be halved five times."""


@dataclass(frozen=True)
class SetEncoderConfig:
    """d_theta. The paper's encoder has batch-norm and sees the backbone's input at full size."""

    kind: Literal["convolutional", "backbone"] = "convolutional"
    """convolutional: the paper's five convolutions. backbone: channel statistics of the frozen backbone's early
    layers, projected to 64 numbers."""
    standardise: bool = False
    """Standardise the task encoding over training tasks, number by number, before FiLM is generated from it."""
    norm: Literal["batch", "group"] = "batch"
    """Of the convolutional encoder."""
    image_size: int | None = None
    """Images are averaged down to this size first; None leaves them as they are."""
    batch_statistics: bool = False
    """Normalise by the statistics of the images at hand in evaluation too, as the released few-shot scripts do."""

    def __post_init__(self) -> None:
        if self.kind not in ("convolutional", "backbone"):
            raise BadInputError(f"the set encoder is convolutional or backbone, not {self.kind!r}")
        if self.kind == "backbone" and not self.standardise:
            raise BadInputError("the set encoder of kind backbone needs standardise = true")
        if self.norm not in ("batch", "group"):
            raise BadInputError(f"the set encoder's norm is batch or group, not {self.norm!r}")
        if self.batch_statistics and self.norm != "batch":
            raise BadInputError(f"batch statistics need batch-norm; the set encoder's norm is {self.norm}")
        if self.image_size is not None and self.image_size < SMALLEST_IMAGE:
            raise BadInputError(
                f"the set encoder halves images five times: {self.image_size} pixels are too few, "
                f"{SMALLEST_IMAGE} are enough"
            )


class SetEncoder(nn.Module):
    """Five times [3 x 3 convolution to 64, norm, ReLU, 2 x 2 max-pool], then the global average: N x 64."""

    def __init__(self, config: SetEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList()
        for layer in range(5):
            conv = nn.Conv2d(3 if layer == 0 else ENCODING_WIDTH, ENCODING_WIDTH, 3, padding=1)
            norm = (
                nn.BatchNorm2d(ENCODING_WIDTH) if config.norm == "batch" else nn.GroupNorm(8, ENCODING_WIDTH)
            )
            self.layers.append(nn.ModuleDict({"conv": conv, "norm": norm}))

    def forward(self, prepared: Tensor) -> Tensor:
        """One vector per prepared image, N x 64."""
        x = prepared
        size = self.config.image_size
        if size is not None and x.shape[-1] != size:
            x = nn.functional.adaptive_avg_pool2d(x, size)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            x = self._norm(layer["norm"], layer["conv"](x))
            x = nn.functional.max_pool2d(torch.relu(x), 2)
        return x.mean(dim=(2, 3))

    def _norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        if self.config.batch_statistics and isinstance(norm, nn.BatchNorm2d) and not self.training:
            return nn.functional.batch_norm(
                x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps
            )
        normed: Tensor = norm(x)
        return normed


class TaskNorm(nn.Module):
    """Standardise a vector, number by number, by its mean and variance over training tasks.

    A task encoding is nearly the same for all tasks (its mean is tens of times its deviation), so that a generator
    that reads it as it is learns one constant modulation. The statistics move in training, by `update`, and are
    fixed in evaluation.
    """

    _MOMENTUM = 0.005
    _EPSILON = 1e-8
    LARGEST = 5.0
    """Standardised values are cut off here: a task unlike all training tasks must not be extrapolated far."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.register_buffer("tasks", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Standardised vectors, ... x width."""
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        return ((x - mean) * torch.rsqrt(variance + self._EPSILON)).clamp(-self.LARGEST, self.LARGEST)

    @torch.no_grad()
    def update(self, vectors_TW: Tensor) -> None:
        """Move the statistics by the vectors of some tasks, in their order: averages at first, exponential later."""
        mean, variance, tasks = (self.get_buffer(name) for name in ("mean", "variance", "tasks"))
        for vector_W in vectors_TW.to(mean):
            weight = max(1 / (int(tasks) + 1), self._MOMENTUM)
            shift_W = vector_W - mean
            variance.add_(weight * shift_W.square()).mul_(1 - weight)
            mean.add_(weight * shift_W)
            tasks += 1


class _EarlyLayersDoneError(Exception):
    """Ends a forward pass after the last layer that is read."""


class BackboneSetEncoder(nn.Module):
    """Channel means and deviations of the frozen backbone's early layers, standardised and projected: N x 64.

    The first quarter of the backbone's modulated layers is read, as it is without modulation. The backbone is not a
    part of this module: it is trained nowhere and stored elsewhere.
    """

    def __init__(self, config: SetEncoderConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        early = backbone.film_layers[: ceil(len(backbone.film_layers) / 4)]
        self._axes = {layer.name: channel_axis(backbone.network.get_submodule(layer.name)) for layer in early}
        self._backbone = (backbone,)  # in a tuple, so that it is not registered as a part
        width = 2 * sum(layer.channels for layer in early)
        self.norm = TaskNorm(width)
        self.project = nn.Linear(width, ENCODING_WIDTH)

    def forward(self, prepared: Tensor) -> Tensor:
        """One vector per prepared image, N x 64."""
        projected: Tensor = self.project(self.norm(self.statistics(prepared)))
        return projected

    @torch.no_grad()
    def statistics(self, prepared: Tensor) -> Tensor:
        """Mean and deviation of every channel of the early layers, per image: N x width."""
        backbone, found = self._backbone[0], dict[str, Tensor]()
        size = self.config.image_size
        if size is not None and prepared.shape[-1] > (size := backbone.info.nearest_size(size)):
            prepared = nn.functional.adaptive_avg_pool2d(prepared, size)

        def read(name: str, _module: nn.Module, _inputs: object, output: Tensor) -> None:
            channels = self._axes[name] % output.ndim
            positions = tuple(axis for axis in range(1, output.ndim) if axis != channels)
            mean_NC = output.mean(dim=positions)
            deviation_NC = (output.square().mean(dim=positions) - mean_NC.square()).clamp_min(0).sqrt()
            found.setdefault(name, torch.cat([mean_NC, deviation_NC], dim=1))  # of its first use
            if len(found) == len(self._axes):
                raise _EarlyLayersDoneError

        with ExitStack() as hooks, suppress(_EarlyLayersDoneError):
            for name in self._axes:
                layer = backbone.network.get_submodule(name)
                hooks.enter_context(layer.register_forward_hook(partial(read, name)))
            backbone.network(prepared)
        return torch.cat(list(found.values()), dim=1)


def make_set_encoder(config: SetEncoderConfig, backbone: Backbone | None) -> SetEncoder | BackboneSetEncoder:
    """Return d_theta of the configured kind; the convolutional one needs no backbone."""
    if config.kind == "convolutional":
        return SetEncoder(config)
    if backbone is None:
        raise BadInputError("a set encoder of kind backbone needs the backbone that it reads")
    return BackboneSetEncoder(config, backbone)


class _TaskEncoder(nn.Module):
    """d_theta and, where the configuration wants it, the standardisation of what is pooled from it."""

    uses_queries: bool

    def __init__(self, config: SetEncoderConfig, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.set_encoder = make_set_encoder(config, backbone)
        self.norm = TaskNorm(ENCODING_WIDTH) if config.standardise else nn.Identity()
        self.raw: Tensor | None = None
        """The support's encoding before standardisation, of the latest task that was pooled in training mode."""

    def _standardised(self, encoding: Tensor) -> Tensor:
        if self.training:
            self.raw = encoding.detach()
        standard: Tensor = self.norm(encoding)
        return standard

    @torch.no_grad()
    def calibrate(self, tasks: Sequence[Tensor]) -> None:
        """Set the standardisation by the support images of some training tasks, each prepared for the backbone.

        Weights that a training starts from bring theirs, which stays.
        """
        if isinstance(self.norm, TaskNorm) and int(self.norm.get_buffer("tasks")):
            return
        if isinstance(self.set_encoder, BackboneSetEncoder):
            self.set_encoder.norm.update(
                torch.stack([self.set_encoder.statistics(images).mean(dim=0) for images in tasks])
            )
        if isinstance(self.norm, TaskNorm):
            self.norm.update(torch.stack([self.set_encoder(images).mean(dim=0) for images in tasks]))


class MeanTaskEncoder(_TaskEncoder):
    """Simple CNAPS and CNAPS: the mean over all support images."""

    uses_queries = False

    def pool(self, support_N64: Tensor, labels_N: Tensor, query_Q64: Tensor | None) -> Tensor:  # noqa: ARG002
        """Encoding (64) from the embedded images of the task."""
        _check_support(support_N64, labels_N)
        return self._standardised(support_N64.mean(dim=0))


class TransductiveTaskEncoder(_TaskEncoder):
    """Transductive CNAPS (eq. transductive-cnaps-eq:encoder): an LSTM reads e_s, then e_q.

    e_s is the mean over classes of the class means, e_q the mean over queries. Where encodings are standardised, the
    LSTM's output is added to e_s: with an untrained LSTM the model so begins close to Simple CNAPS, whose adaptation
    it starts from.
    """

    uses_queries = True

    def __init__(self, config: SetEncoderConfig, backbone: Backbone | None = None) -> None:
        super().__init__(config, backbone)
        self.lstm = nn.LSTM(ENCODING_WIDTH, ENCODING_WIDTH, num_layers=2)

    def pool(self, support_N64: Tensor, labels_N: Tensor, query_Q64: Tensor | None) -> Tensor:
        """Encoding (64) from the embedded images of the task."""
        _check_support(support_N64, labels_N)
        if query_Q64 is None or query_Q64.shape[0] == 0:
            raise BadInputError("a transductive task encoding needs the task's query images")
        classes, position = torch.unique(labels_N.to(support_N64.device), return_inverse=True)
        member_KN = torch.nn.functional.one_hot(position, len(classes)).T.to(support_N64.dtype)
        class_means_K64 = member_KN @ support_N64 / member_KN.sum(dim=1, keepdim=True)
        support_64 = self._standardised(class_means_K64.mean(dim=0))
        query_64: Tensor = self.norm(query_Q64.mean(dim=0))
        outputs: Tensor = self.lstm(torch.stack([support_64, query_64]))[0]
        return outputs[-1] if isinstance(self.norm, nn.Identity) else support_64 + outputs[-1]


def _check_support(support_N64: Tensor, labels_N: Tensor) -> None:
    if not len(support_N64):
        raise BadInputError("a task encoding needs support images, there are none")
    if labels_N.shape != (len(support_N64),):
        raise BadInputError(
            f"expected one label per support image ({len(support_N64)}), got labels of shape {tuple(labels_N.shape)}"
        )
