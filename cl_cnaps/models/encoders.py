"""Task encoders: from the images of a task to one vector (fig:feature-extraction-procedure-overview).

g_theta in the paper; d_theta is its convolutional part, here `SetEncoder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError

ENCODING_WIDTH = 64

SMALLEST_IMAGE = 32
"""Side of the smallest image that can be halved five times."""


@dataclass(frozen=True)
class SetEncoderConfig:
    """d_theta. The paper's encoder has batch-norm and sees the backbone's input at full size."""

    norm: Literal["batch", "group"] = "batch"
    image_size: int | None = None
    """Images are averaged down to this size first; None leaves them as they are."""
    batch_statistics: bool = False
    """Normalise by the statistics of the images at hand in evaluation too, as the released few-shot scripts do."""

    def __post_init__(self) -> None:
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


class MeanTaskEncoder(nn.Module):
    """Simple CNAPS and CNAPS: the mean over all support images."""

    uses_queries = False

    def __init__(self, config: SetEncoderConfig) -> None:
        super().__init__()
        self.set_encoder = SetEncoder(config)

    def pool(self, support_N64: Tensor, labels_N: Tensor, query_Q64: Tensor | None) -> Tensor:  # noqa: ARG002
        """Encoding (64) from the embedded images of the task."""
        _check_support(support_N64, labels_N)
        return support_N64.mean(dim=0)


class TransductiveTaskEncoder(nn.Module):
    """Transductive CNAPS (eq. transductive-cnaps-eq:encoder): an LSTM reads e_s, then e_q.

    e_s is the mean over classes of the class means, e_q the mean over queries.
    """

    uses_queries = True

    def __init__(self, config: SetEncoderConfig) -> None:
        super().__init__()
        self.set_encoder = SetEncoder(config)
        self.lstm = nn.LSTM(ENCODING_WIDTH, ENCODING_WIDTH, num_layers=2)

    def pool(self, support_N64: Tensor, labels_N: Tensor, query_Q64: Tensor | None) -> Tensor:
        """Encoding (64) from the embedded images of the task."""
        _check_support(support_N64, labels_N)
        if query_Q64 is None or query_Q64.shape[0] == 0:
            raise BadInputError("a transductive task encoding needs the task's query images")
        classes, position = torch.unique(labels_N.to(support_N64.device), return_inverse=True)
        member_KN = torch.nn.functional.one_hot(position, len(classes)).T.to(support_N64.dtype)
        class_means_K64 = member_KN @ support_N64 / member_KN.sum(dim=1, keepdim=True)
        sequence = torch.stack([class_means_K64.mean(dim=0), query_Q64.mean(dim=0)])
        outputs: Tensor = self.lstm(sequence)[0]
        return outputs[-1]


def _check_support(support_N64: Tensor, labels_N: Tensor) -> None:
    if not len(support_N64):
        raise BadInputError("a task encoding needs support images, there are none")
    if labels_N.shape != (len(support_N64),):
        raise BadInputError(
            f"expected one label per support image ({len(support_N64)}), got labels of shape {tuple(labels_N.shape)}"
        )
