"""3 x 3 convolutions with fewer multiplications (Winograd 1980; Lavin and Gray 2016), for wide layers on CPUs.

An output tile of m x m pixels needs (m + 2)^2 multiplications for each pair of channels in place of 9 m^2, since

    Y = A^T [ (G w G^T) * (B^T x B) ] A

with constant A, B, G. The kernel's side is worked out once, when weights are folded; the sum over input channels
becomes (m + 2)^2 matrix products. Moving tiles about costs more than is saved where there are few channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

NARROWEST = 128
"""Input and output channels from which on it is faster than the direct form, as far as tried with AVX2: with 256 half
again as fast, with 128 a little, with 64 slower."""

_B: Mapping[int, Sequence[Sequence[float]]] = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
}
_G: Mapping[int, Sequence[Sequence[float]]] = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
}
_A: Mapping[int, Sequence[Sequence[float]]] = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}


def pays(conv: nn.Conv2d) -> bool:
    """Whether a convolution can be done this way, and is wide enough that it should."""
    plain = (conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode)
    return (
        type(conv) is nn.Conv2d  # timm pads in subclasses
        and plain == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")
        and min(conv.in_channels, conv.out_channels) >= NARROWEST
        and conv.weight.device.type == "cpu"
        and conv.weight.dtype in (torch.float32, torch.float64)
    )


class WinogradConv(nn.Module):
    """What a convolution does to images of about one size; for inference."""

    def __init__(self, conv: nn.Conv2d, size: tuple[int, int]) -> None:
        super().__init__()
        assert conv.bias is not None
        # The tile with fewer multiplications: large ones waste more at the edges of a small image.
        tile = min(_B, key=lambda m: math.prod(-(-side // m) for side in size) * (m + 2) ** 2)
        like = conv.weight
        self.tile, self.reach = tile, tile + 2
        kernel = _twice(_G[tile], like) @ like.detach().reshape(-1, 9).T  # E^2 x OI
        channels = (conv.out_channels, conv.in_channels)
        self.weight = nn.Parameter(
            kernel.view(-1, *channels).transpose(1, 2).contiguous(), requires_grad=False
        )
        self.bias = nn.Parameter(conv.bias.detach(), requires_grad=False)
        self.register_buffer("into", _twice(_B[tile], like), persistent=False)
        self.register_buffer("back", _twice(_A[tile], like), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """N x I x H x W to N x O x H x W, channels last."""
        n, _, height, width = x.shape
        m, reach = self.tile, self.reach
        down, across = -(-height // m), -(-width // m)
        # One name for what follows from another, so that only two of these large arrays exist at a time.
        x = nn.functional.pad(x, (1, m * across + 1 - width, 1, m * down + 1 - height)).permute(0, 2, 3, 1)
        x = x.unfold(1, reach, m).unfold(2, reach, m)  # N x down x across x I x E x E
        x = x.permute(4, 5, 0, 1, 2, 3).reshape(reach**2, -1)
        x = (self.get_buffer("into") @ x).view(reach**2, n * down * across, -1)
        x = torch.bmm(x, self.weight)  # E^2 x tiles x O
        x = (self.get_buffer("back") @ x.view(reach**2, -1)).view(m, m, n, down, across, -1)
        x = x.permute(2, 3, 0, 4, 1, 5).reshape(n, m * down, m * across, -1)[:, :height, :width]
        return (x + self.bias).permute(0, 3, 1, 2)


def _twice(matrix: Sequence[Sequence[float]], like: Tensor) -> Tensor:
    """The matrix on both sides of a square, as one matrix on the square's numbers."""
    one = torch.tensor(matrix, dtype=torch.float64)
    return torch.kron(one, one).to(like)
