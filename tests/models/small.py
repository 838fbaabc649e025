"""Small networks and tasks, so that tests of the models take milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_cnaps.models.backbones import Backbone, norm_layers
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, ModelName, make_model
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.models.film import Film
from cl_cnaps.models.networks import BackboneInfo


class TwoLayers(nn.Module):
    """Two convolutions with batch-norm, then the global average."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 10, 3, stride=2), nn.BatchNorm2d(10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x))).mean(dim=(2, 3))


def scramble(network: nn.Module, seed: int = 0) -> nn.Module:
    """Norms that do something: running statistics, weights and biases away from the identity."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm) and module.bias is not None:
            with torch.no_grad():
                if isinstance(module, nn.BatchNorm2d):
                    assert module.running_mean is not None
                    assert module.running_var is not None
                    module.running_mean.normal_(0, 0.2, generator=generator)
                    module.running_var.uniform_(0.5, 2.0, generator=generator)
                module.weight.uniform_(0.7, 1.4, generator=generator)
                module.bias.normal_(0, 0.2, generator=generator)
    return network


def backbone_of(network: nn.Module, image_size: int = 32, seed: int = 0) -> Backbone:
    """A backbone around any network, all of its batch-norms modulated."""
    with torch.no_grad():
        width = int(network.eval()(torch.zeros(1, 3, image_size, image_size)).shape[1])
    half = (0.5, 0.5, 0.5)
    info = BackboneInfo("small", image_size, half, half, width, "made up", "none")
    return Backbone(scramble(network, seed), info, norm_layers(network))


def small_backbone(seed: int = 0) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return backbone_of(TwoLayers(), seed=seed)


def small_model(name: ModelName, **settings: object) -> CnapsModel:
    """A model on the small backbone whose adaptation does something."""
    settings.setdefault("encoder", SetEncoderConfig())
    config = CnapsConfig(model=name, backbone="small", **settings)  # type: ignore[arg-type]
    model = make_model(config, small_backbone())
    generator = torch.Generator().manual_seed(1)
    for parameter in model.adaptation.parameters() if config.adaptation == "film" else ():
        with torch.no_grad():
            parameter.normal_(0, 0.1, generator=generator)
    return model


def some_film(backbone: Backbone, seed: int = 0) -> Film:
    """FiLM away from the identity."""
    generator = torch.Generator().manual_seed(seed)
    like = next(backbone.network.parameters())
    sizes = [layer.channels for layer in backbone.film_layers]
    return Film(
        tuple((1 + 0.3 * torch.randn(n, generator=generator)).to(like) for n in sizes),
        tuple((0.3 * torch.randn(n, generator=generator)).to(like) for n in sizes),
    )


@dataclass(frozen=True)
class SmallTask:
    """Images whose classes differ in colour, as uint8."""

    support: Tensor
    labels: Tensor
    query: Tensor
    way: int


def small_task(way: int = 3, shot: int = 4, n_query: int = 7, size: int = 32, seed: int = 0) -> SmallTask:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(way).repeat_interleave(shot)
    colours = torch.randint(0, 150, (way, 3, 1, 1), generator=generator)

    def images(classes: Tensor) -> Tensor:
        noise = torch.randint(0, 100, (len(classes), 3, size, size), generator=generator)
        return (colours[classes] + noise).to(torch.uint8)

    return SmallTask(images(labels), labels, images(torch.arange(n_query) % way), way)
