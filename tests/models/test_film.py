"""FiLM in four forms: hooks that multiply and add, replaced parameters, the form that is trained, the folded form."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import pytest
import torch
from models.small import TwoLayers, backbone_of, scramble, small_backbone, some_film
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models import film_training
from cl_cnaps.models.backbones import Backbone, load_backbone
from cl_cnaps.models.film import Film, Folder, modulated_forward
from cl_cnaps.models.film_training import FilmNorm, training_forward

NETWORKS = {
    "efficientnet-lite0": "auto",
    "resnet18": "random",
    "timm:resnet26": "random",  # bottlenecks
    "timm:mobilenetv3_small_050": "random",  # activation inside the batch-norm module, depthwise, squeeze-excite
    "timm:regnety_002": "random",  # grouped convolutions, squeeze-excite
    "timm:densenet121": "random",  # batch-norm before the convolution: only some of them fold
    "timm:test_vit": "random",  # layer-norm, class token, position embedding resampled to 64 pixels
    "timm:test_vit3": "random",  # norms of queries and keys, pooling by attention
    "timm:test_convnext": "random",  # layer-norm of maps, with channels first and last
    "timm:convnext_atto": "random",  # layer-norm before convolutions
    "timm:test_efficientnet_gn": "random",  # group-norm with the activation inside
}


@cache
def loaded(name: str) -> Backbone:
    backbone = load_backbone(name, weights=NETWORKS[name], image_size=64)
    if NETWORKS[name] == "random":
        scramble(backbone.network)
    return backbone


def hooked_forward(backbone: Backbone, film: Film, prepared: Tensor) -> Tensor:
    """The textbook: gamma * norm(x) + beta, before any activation that the norm's module may hold."""

    def modulate(norm: Any, inputs: tuple[Tensor, ...], _: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        x = inputs[0]
        first = not isinstance(norm, nn.LayerNorm) or "2d" in type(norm).__name__

        def channels(v: Tensor) -> Tensor:
            return v.view(1, -1, 1, 1) if first else v

        if isinstance(norm, nn.BatchNorm2d):
            mean, variance = channels(norm.running_mean), channels(norm.running_var)
        elif isinstance(norm, nn.LayerNorm):
            axis = 1 if first else -1
            mean, variance = x.mean(axis, keepdim=True), x.var(axis, keepdim=True, correction=0)
        else:
            groups = x.reshape(len(x), norm.num_groups, -1)
            each = x.shape[1] // norm.num_groups
            mean, variance = (
                v.repeat_interleave(each, dim=1)[..., None, None]
                for v in (groups.mean(2), groups.var(2, correction=0))
            )
        normal = (x - mean) / (variance + norm.eps).sqrt()
        out = channels(gamma) * (channels(norm.weight) * normal + channels(norm.bias)) + channels(beta)
        return norm.act(out) if hasattr(norm, "act") else out

    handles = [
        backbone.network.get_submodule(layer.name).register_forward_hook(
            partial(modulate, gamma=gamma, beta=beta)
        )
        for layer, gamma, beta in zip(backbone.film_layers, film.gammas, film.betas, strict=True)
    ]
    try:
        with torch.no_grad():
            return backbone.network(prepared)
    finally:
        for handle in handles:
            handle.remove()


def noise(backbone: Backbone, n: int = 3) -> Tensor:
    size = backbone.info.image_size
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(5))


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def assert_forms_agree(backbone: Backbone) -> None:
    film, images = some_film(backbone), noise(backbone)
    hooked = hooked_forward(backbone, film, images)
    with torch.no_grad():
        plain = backbone(images)
        functional = modulated_forward(backbone, film, images)
        trained = training_forward(backbone, film, images)
        folded = Folder(backbone).fold(film)(images)
    assert difference(functional, hooked) < 1e-4
    assert difference(trained, functional) < 1e-5
    assert difference(folded, functional) < 1e-5
    assert difference(plain, hooked) > 1e-2, "FiLM changed nothing: the comparison proves nothing"


@pytest.mark.parametrize("name", NETWORKS)
def test_forms_agree(name: str) -> None:
    assert_forms_agree(loaded(name))


def test_every_batch_norm_after_a_convolution_is_folded() -> None:
    for name in ("efficientnet-lite0", "timm:resnet26", "timm:mobilenetv3_small_050", "timm:regnety_002"):
        assert Folder(loaded(name)).folded_layers == len(loaded(name).film_layers), name
    assert Folder(loaded("resnet18")).folded_layers == 20  # those that FiLM leaves alone fold too
    dense = loaded("timm:densenet121")
    assert 0 < Folder(dense).folded_layers < len(dense.film_layers) == 121


def test_layer_norms_fold_into_what_reads_them_alone() -> None:
    last = {"timm:test_vit": 1, "timm:test_vit3": 0, "timm:test_convnext": 2, "timm:convnext_atto": 2}
    for name, left in last.items():  # the stem's, whose output goes on, and the last, which the features are
        assert Folder(loaded(name)).folded_layers == len(loaded(name).film_layers) - left, name
    assert Folder(loaded("timm:test_efficientnet_gn")).folded_layers == 0


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_convnext"])
def test_gradients_of_layer_norm_films_match_finite_differences(name: str) -> None:
    backbone = copy.deepcopy(loaded(name)).double()
    film, images = some_film(backbone), noise(backbone, 2).double()
    parts = (*film.gammas, *film.betas)
    towards = [torch.randn(len(part), generator=torch.Generator().manual_seed(3)).double() for part in parts]
    weights = torch.randn(backbone.info.width, generator=torch.Generator().manual_seed(4)).double()

    def loss(step: Tensor) -> Tensor:
        moved = [part + step[i] * way for i, (part, way) in enumerate(zip(parts, towards, strict=True))]
        half = len(film.gammas)
        return (
            training_forward(backbone, Film(tuple(moved[:half]), tuple(moved[half:])), images) @ weights
        ).sum()

    start = torch.zeros(len(parts), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (start,), eps=1e-6, atol=1e-6, rtol=1e-5)
    (gradient,) = torch.autograd.grad(loss(start), start)
    assert bool((gradient != 0).all())


@pytest.mark.parametrize("activation", [nn.ReLU6, nn.ReLU, nn.Identity])
def test_gradients_of_some_images_at_a_time_are_those_of_the_plain_form(
    activation: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread goes through a map in parts, here of two of five images; several threads all at once."""
    generator = torch.Generator().manual_seed(0)
    norm = nn.BatchNorm2d(3).eval()
    for tensor in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
        assert tensor is not None
        tensor.copy_(0.5 + torch.rand(3, generator=generator))
    plain = nn.Sequential(norm, activation()).double()
    norm.act = activation()  # as timm has it
    x = 3 * torch.randn(5, 3, 4, 4, generator=generator, dtype=torch.float64)

    def gradients(form: nn.Module) -> tuple[Tensor, ...]:
        inputs = (x.clone().requires_grad_(), norm.weight, norm.bias)
        return torch.autograd.grad(form(inputs[0]).square().sum(), inputs)

    monkeypatch.setattr(film_training, "_IN_CACHE", 2 * 3 * 4 * 4)
    for threads, parts in ((1, 3), (2, 1)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert len(film_training._parts(x)) == parts
        for found, expected in zip(gradients(FilmNorm(norm)), gradients(plain), strict=True):
            assert torch.allclose(found, expected, rtol=1e-9)


class NormReadTwice(nn.Module):
    """What the layer-norm gives goes to a linear layer and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return (self.linear(x).tanh() + 0.1 * x).mean(dim=(1, 2))


class ConvolutionReadTwice(nn.Module):
    """What the convolution gives goes to the batch-norm and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return (self.bn(x).relu() + 0.1 * x).mean(dim=(2, 3))


class ActivationInPlace(nn.Module):
    """The same tensor object reaches the batch-norm, but an activation has been at it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.bn = nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.relu(self.conv(x))).tanh().mean(dim=(2, 3))


class OneNormForTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.bn = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv2(self.bn(self.conv1(x)).relu())).relu().mean(dim=(2, 3))


class OneConvolutionForTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.conv, self.bn1, self.bn2 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv(self.stem(x))).relu()
        return self.bn2(self.conv(x)).relu().mean(dim=(2, 3))


class NormFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.bn(x)).relu().mean(dim=(2, 3))


@pytest.mark.parametrize(
    "network",
    [NormReadTwice, ConvolutionReadTwice, ActivationInPlace, OneNormForTwo, OneConvolutionForTwo, NormFirst],
)
def test_a_network_that_cannot_be_folded_is_not(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    backbone = backbone_of(network(), image_size=16)
    assert_forms_agree(backbone)
    assert Folder(backbone).folded_layers == 0


def test_which_layers_are_modulated_is_data() -> None:
    whole = small_backbone()
    film = some_film(whole)
    identity = Film.identity(whole.film_layers)
    only_second = Backbone(whole.network, whole.info, whole.film_layers[1:])
    images = noise(whole)
    expected = hooked_forward(
        whole, Film((identity.gammas[0], film.gammas[1]), (identity.betas[0], film.betas[1])), images
    )
    part = Film(film.gammas[1:], film.betas[1:])
    with torch.no_grad():
        torch.testing.assert_close(modulated_forward(only_second, part, images), expected)
        torch.testing.assert_close(Folder(only_second).fold(part)(images), expected)
    stem_and_shortcuts = {"bn1", "layer2.0.downsample.1", "layer3.0.downsample.1", "layer4.0.downsample.1"}
    names = {layer.name for layer in loaded("resnet18").film_layers}
    assert len(names) == 16
    assert not names & stem_and_shortcuts


def test_film_of_another_shape_is_refused() -> None:
    backbone = small_backbone()
    film = some_film(backbone)
    for wrong in (
        Film(film.gammas[:1], film.betas[:1]),
        Film(film.gammas, film.betas[:1]),
        Film((film.gammas[0][:1], film.gammas[1]), film.betas),
        Film(film.gammas, (film.betas[1], film.betas[0])),
    ):
        with pytest.raises(BadInputError, match="FiLM"):
            modulated_forward(backbone, wrong, noise(backbone))
        with pytest.raises(BadInputError, match="FiLM"):
            Folder(backbone).fold(wrong)


def test_folding_leaves_the_backbone_alone_and_follows_it() -> None:
    backbone, other = small_backbone(0), small_backbone(1)
    film, images = some_film(backbone), noise(backbone)
    folder = Folder(backbone)
    before = backbone.digest()
    with torch.no_grad():
        first = folder.fold(film)(images)
        assert backbone.digest() == before
        torch.testing.assert_close(modulated_forward(backbone, film, images), first)
        backbone.network.load_state_dict(other.network.state_dict())
        second = folder.fold(film)(images)
        torch.testing.assert_close(second, modulated_forward(other, film, images))
        assert difference(second, first) > 1e-2
        backbone.double()
        doubled = folder.fold(some_film(backbone))(images.double())
        assert doubled.dtype == torch.float64
        torch.testing.assert_close(doubled.float(), second, rtol=1e-4, atol=1e-5)


def test_unfolded_layers_follow_the_backbone_too() -> None:
    torch.manual_seed(0)
    backbone = backbone_of(NormFirst(), image_size=16)
    film, images = some_film(backbone), noise(backbone)
    folder = Folder(backbone)
    with torch.no_grad():
        folder.fold(film)
        for parameter in backbone.network.parameters():
            parameter.mul_(1.5)
        torch.testing.assert_close(folder.fold(film)(images), modulated_forward(backbone, film, images))


def test_folded_networks_of_several_tasks_run_at_once() -> None:
    backbone = small_backbone()
    folder = Folder(backbone)
    images = noise(backbone, 8)
    networks = [folder.fold(some_film(backbone, seed)) for seed in range(4)]
    with torch.no_grad():
        expected = [network(images) for network in networks]
    assert difference(expected[0], expected[1]) > 1e-2

    def run(i: int) -> Tensor:
        with torch.no_grad():
            return networks[i](images)

    with ThreadPoolExecutor(4) as pool:
        for i, result in enumerate(pool.map(run, [0, 1, 2, 3] * 10)):
            assert torch.equal(result, expected[i % 4])


def test_gradients_flow_through_the_functional_form_alone() -> None:
    backbone = backbone_of(TwoLayers())
    film = some_film(backbone)
    for tensor in (*film.gammas, *film.betas):
        tensor.requires_grad_()
    modulated_forward(backbone, film, noise(backbone)).sum().backward()
    assert all(bool((tensor.grad != 0).any()) for tensor in (*film.gammas, *film.betas))
    assert all(parameter.grad is None for parameter in backbone.network.parameters())
    assert not Folder(backbone).fold(film)(noise(backbone)).requires_grad
