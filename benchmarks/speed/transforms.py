"""Images made ready in the textbook way: one after the other, through torchvision."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.models.networks import BackboneInfo


def transformed(images: Tensor, info: BackboneInfo) -> Tensor:
    """uint8 images resized, made floating point and normalised: N x 3 x H x W."""
    from torchvision import transforms

    chain = transforms.Compose(
        [
            transforms.ToPILImage(),
            transforms.Resize((info.image_size, info.image_size)),
            transforms.ToTensor(),
            transforms.Normalize(info.mean, info.std),
        ]
    )
    return torch.stack([chain(image) for image in images])
