"""The textbook forms that speed is measured against are the same maths: a ratio to something else says nothing."""

from __future__ import annotations

import torch
from models.small import small_backbone, some_film

from benchmarks.speed.modulated import FilmLayers
from benchmarks.speed.textbook import (
    dense_covariances,
    dense_logits,
    dense_refinement,
    features_like_a_network,
)
from benchmarks.speed.transforms import transformed
from cl_cnaps.gaussian import estimate, mahalanobis_logits, refine, support_statistics
from cl_cnaps.models.film import modulated_forward


def a_task() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = features_like_a_network(4, 9, 32, torch.Generator().manual_seed(0))
    labels = torch.arange(4).repeat_interleave(5)
    return features[:, :5].reshape(-1, 32), labels, features[:, 5:].reshape(-1, 32)


def test_the_dense_classifier() -> None:
    support, labels, query = a_task()
    expected = mahalanobis_logits(estimate(support_statistics(support, labels, 4)), query)
    torch.testing.assert_close(
        dense_logits(*dense_covariances(support, labels, 4), query), expected, rtol=1e-4, atol=1e-4
    )


def test_the_dense_refinement() -> None:
    support, labels, query = a_task()
    expected = refine(support_statistics(support, labels, 4), query, min_steps=3, max_steps=3).logits_QK
    got = dense_refinement(support, labels, 4, query, 3)
    torch.testing.assert_close(got, expected.to(got), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_film_as_extra_layers() -> None:
    backbone = small_backbone()
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    layers = FilmLayers(backbone)
    for seed in range(2):  # another task, another modulation
        film = some_film(backbone, seed)
        torch.testing.assert_close(layers(images, film), modulated_forward(backbone, film, images))


def test_transforms_normalise_as_the_backbone_does() -> None:
    backbone = small_backbone()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(transformed(images, backbone.info), backbone.prepare(images).contiguous())
