"""An episode with its images loaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.episodes.episode import Episode
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class EpisodeBatch:
    """Support and query images (N x C x H x W) with their labels 0..way-1 (int64, N)."""

    way: int
    support_images: Tensor
    support_labels: Tensor
    query_images: Tensor
    query_labels: Tensor

    def __post_init__(self) -> None:
        for name, images, labels in (
            ("support", self.support_images, self.support_labels),
            ("query", self.query_images, self.query_labels),
        ):
            if images.ndim != 4 or labels.shape != images.shape[:1]:
                raise BadInputError(
                    f"{name} images have shape {tuple(images.shape)} and labels {tuple(labels.shape)}; "
                    "N x C x H x W and N are needed"
                )

    @classmethod
    def of(cls, episode: Episode, support_images: Tensor, query_images: Tensor) -> EpisodeBatch:
        """The episode's images, loaded in the order of its rows, joined to its labels."""
        device = support_images.device
        return cls(
            way=episode.way,
            support_images=support_images,
            support_labels=torch.tensor(episode.support[:, 0], device=device),
            query_images=query_images,
            query_labels=torch.tensor(episode.query[:, 0], device=device),
        )

    def to(self, device: torch.device | str) -> EpisodeBatch:
        """The same batch on another device."""
        return EpisodeBatch(
            self.way,
            self.support_images.to(device),
            self.support_labels.to(device),
            self.query_images.to(device),
            self.query_labels.to(device),
        )
