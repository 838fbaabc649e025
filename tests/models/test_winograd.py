"""Winograd convolutions equal direct ones, and are used where they are faster."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model
from cl_cnaps.models.winograd import NARROWEST, WinogradConv, pays


def wide(channels: int = NARROWEST, **settings: object) -> nn.Conv2d:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Conv2d(channels, channels, **{"kernel_size": 3, "padding": 1, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4), (6, 6), (7, 5), (11, 11), (13, 12)])
@pytest.mark.parametrize("made_for", [(6, 6), (11, 11)])
def test_it_does_what_the_convolution_does(size: tuple[int, int], made_for: tuple[int, int]) -> None:
    conv = wide(8).double()
    x = torch.randn(3, 8, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(WinogradConv(conv, made_for)(x), conv(x), rtol=1e-11, atol=1e-11)


def test_in_float32_it_loses_few_digits() -> None:
    conv = wide()
    x = torch.randn(2, NARROWEST, 11, 11, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact = wide().double()(x.double())
        errors = [float((form(x) - exact).abs().max()) for form in (conv, WinogradConv(conv, (11, 11)))]
    assert errors[1] <= 2e-5 * float(exact.abs().max())


def test_tiles_are_chosen_by_the_multiplications_they_take() -> None:
    assert WinogradConv(wide(8), (6, 6)).tile == 2
    assert WinogradConv(wide(8), (11, 11)).tile == 4


@pytest.mark.parametrize(
    "settings",
    [{"kernel_size": 1}, {"stride": 2}, {"padding": 0}, {"dilation": 2}, {"groups": 2}, {"channels": 64}],
)
def test_other_convolutions_are_left_alone(settings: dict[str, int]) -> None:
    assert pays(wide())
    assert not pays(wide(**settings))
    assert not pays(wide().half())


def test_the_papers_backbone_has_nine_and_comes_out_the_same() -> None:
    backbone = load_backbone("resnet18", weights="random")
    model = make_model(CnapsConfig.for_backbone("simple", "resnet18"), backbone)
    network = model.fold(model.adapt(None))
    assert sum(isinstance(part, WinogradConv) for part in network.network.modules()) == 9
    images = torch.randint(0, 256, (4, 3, 84, 84), generator=torch.Generator().manual_seed(0)).byte()
    with torch.no_grad():
        plain = backbone(backbone.prepare(images))
        torch.testing.assert_close(model.embed_folded(images, network), plain, rtol=1e-5, atol=1e-5)
