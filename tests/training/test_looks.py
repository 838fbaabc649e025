"""Looks of training tasks: what each does to images, and which tasks get one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cl_cnaps.training import looks
from cl_cnaps.training.looks import brightness, draw_look, looked_at
from cl_cnaps.training.recipe import Augmentation
from cl_cnaps.training.tasks import _cropped, augmented
from tests.training.small import small_data, small_recipe

IMAGES = torch.randint(0, 256, (6, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", sorted({*looks._OF_PHOTOGRAPHS, *looks._OF_DRAWINGS}, key=str))
def test_every_look_changes_images_and_repeats(kind: object) -> None:
    first, again = (looked_at(IMAGES, kind(np.random.default_rng(1))) for _ in range(2))  # type: ignore[operator]
    assert first.dtype == torch.uint8
    assert len(first) == len(IMAGES)
    assert torch.equal(first, again)
    assert first.shape != IMAGES.shape or not torch.equal(first, IMAGES)


def test_patches_are_parts_of_their_images() -> None:
    look = looks._patches(np.random.default_rng(0))
    for image, patch in zip(IMAGES, looked_at(IMAGES, look), strict=True):
        side = patch.shape[-1]
        assert 7 <= side <= 14
        windows = image.unfold(1, side, 1).unfold(2, side, 1)
        assert any(
            torch.equal(windows[:, row, column], patch)
            for row in range(windows.shape[1])
            for column in range(windows.shape[2])
        )


def test_contrast_stays_in_the_scale() -> None:
    for seed in range(30):
        span = looks._contrast(np.random.default_rng(seed))(torch.tensor([0.0, 255.0]))
        assert 0 <= span[0] < span[1] <= 255.001


def test_colours_keep_grey_grey() -> None:
    grey = torch.full((1, 3, 4, 4), 77.0)
    for seed in range(10):
        assert torch.allclose(looks._colours(np.random.default_rng(seed))(grey), grey, atol=1e-3)


def test_ink_and_paper_are_two_colours() -> None:
    drawing = torch.where(torch.rand(2, 1, 8, 8) < 0.5, 0.0, 255.0).expand(-1, 3, -1, -1)
    coloured = looks._ink_and_paper(np.random.default_rng(0))(drawing)
    assert len(coloured.movedim(1, -1).reshape(-1, 3).unique(dim=0)) == 2


def test_edges_of_an_even_image_are_none() -> None:
    even = torch.full((1, 3, 8, 8), 200.0)
    assert looks._edges(np.random.default_rng(0))(even).abs().max() < 1e-3
    even[..., 4:] = 0
    assert brightness(looks._edges(np.random.default_rng(0))(even))[..., 4].min() > 100


def test_support_and_query_set_have_other_noise() -> None:
    look = looks._noise(np.random.default_rng(0))
    assert not torch.equal(looked_at(IMAGES, look), looked_at(IMAGES, look))


def test_as_many_tasks_as_the_share_says_have_a_look() -> None:
    data = small_data(small_recipe())
    batch = data.validation["red"][0].batch

    def changed(share: float, *, grey: bool) -> list[bool]:
        return [
            new.support_images.shape != batch.support_images.shape
            or not torch.equal(new.support_images, batch.support_images)
            for new in (
                augmented(batch, Augmentation(look_share=share), seed=0, index=index, grey=grey)
                for index in range(60)
            )
        ]

    for grey in (False, True):
        assert not any(changed(0.0, grey=grey))
        assert 12 <= sum(changed(0.4, grey=grey)) <= 36


def test_drawings_are_not_cut() -> None:
    for seed in range(60):
        look = draw_look(np.random.default_rng(seed), drawings=True)
        assert looked_at(IMAGES, look).shape == IMAGES.shape


def test_each_image_of_a_task_has_a_crop_of_its_own() -> None:
    ramp = (
        torch.arange(0, 240, 5, dtype=torch.uint8).expand(8, 3, 48, 48).contiguous()
    )  # brighter to the right
    cropped = _cropped(ramp, torch.Generator().manual_seed(3))
    assert torch.equal(cropped, _cropped(ramp, torch.Generator().manual_seed(3)))
    assert cropped.shape == ramp.shape
    spans = cropped[:, 0, 0].float().diff(dim=1).mean(dim=1) / 5
    assert ((spans.abs() >= 0.55) & (spans.abs() <= 1)).all(), "parts of at least 0.6 of the side"
    assert (spans > 0).any() and (spans < 0).any(), "some are mirrored"
    assert len({tuple(row.tolist()) for row in cropped[:, 0, 0]}) == 8


def test_crops_are_for_colour_sources() -> None:
    batch = small_data(small_recipe()).validation["red"][0].batch
    crops = Augmentation(crop_share=1.0)
    assert torch.equal(augmented(batch, crops, 0, 0, grey=True).support_images, batch.support_images)
    assert not torch.equal(augmented(batch, crops, 0, 0).support_images, batch.support_images)
