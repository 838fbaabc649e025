"""From a task encoding to FiLM: parameter counts of the paper, the identity at the start."""

from __future__ import annotations

import pytest
import torch
from models.small import small_backbone, small_task

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.adaptation import CompactAdaptation, PaperAdaptation
from cl_cnaps.models.backbones import FilmLayer, load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, ModelName, make_model
from cl_cnaps.models.film import modulated_forward


def count(module: torch.nn.Module, *, trainable: bool = False) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)


@pytest.mark.parametrize(
    ("name", "whole", "trainable"),
    [
        ("simple", 19_771_008, 8_599_104),
        ("transductive", 19_837_568, 8_665_664),
        ("cnaps", 20_559_493, 9_387_589),
        ("protonet", 19_771_008, 8_599_104),
    ],
)
def test_parameter_counts_of_the_paper(name: ModelName, whole: int, trainable: int) -> None:
    model = make_model(CnapsConfig.papers(name), load_backbone("resnet18"))
    assert count(model) == whole
    assert count(model, trainable=True) == trainable
    assert count(model.backbone) == 11_171_904
    if name == "cnaps":
        assert count(model.classifier) == 788_485  # type: ignore[arg-type]


def test_compact_adaptation_starts_at_the_identity() -> None:
    backbone = small_backbone()
    model = make_model(CnapsConfig(backbone="small"), backbone)
    task = small_task()
    with torch.no_grad():
        encoding = model.encode(task.support, task.labels)
        assert encoding is not None
        assert bool((encoding != 0).any())
        film = model.adapt(encoding)
        prepared = backbone.prepare(task.query)
        assert torch.equal(modulated_forward(backbone, film, prepared), backbone(prepared))
        torch.testing.assert_close(model.embed(task.query, film), backbone(prepared))
    assert float(model.adaptation.regularisation().detach()) == 0.0


def test_the_papers_adaptation_starts_near_the_identity_and_is_regularised() -> None:
    torch.manual_seed(0)
    layers = [FilmLayer(f"layer1.{block}.bn{i}", 8) for block in (0, 1) for i in (1, 2)]
    adaptation = PaperAdaptation(layers)
    film = adaptation(torch.randn(64), 84)
    assert len(film.gammas) == len(film.betas) == 4
    for gamma, beta in zip(film.gammas, film.betas, strict=True):
        torch.testing.assert_close(gamma, torch.ones(8), rtol=0, atol=0.05)
        torch.testing.assert_close(beta, torch.zeros(8), rtol=0, atol=0.05)
    regularisers = [p for key, p in adaptation.named_parameters() if key.endswith("regulariser")]
    assert len(regularisers) == 8
    expected = sum(float(p.detach().square().sum()) for p in regularisers)
    assert float(adaptation.regularisation().detach()) == pytest.approx(expected)
    assert 0 < expected < 1e-3


def test_a_processor_is_three_residual_layers_times_a_regulariser() -> None:
    """Written out for beta1 of one block of width 4."""
    torch.manual_seed(0)
    adaptation = PaperAdaptation([FilmLayer("layer1.0.bn1", 4), FilmLayer("layer1.0.bn2", 4)]).double()
    state = adaptation.state_dict()
    encoding = torch.randn(64, dtype=torch.float64)
    x = torch.relu(state["stages.0.shared.weight"] @ encoding + state["stages.0.shared.bias"])
    prefix = "stages.0.blocks.0.beta1."
    for i in range(3):
        x = x + state[f"{prefix}layers.{i}.weight"] @ x + state[f"{prefix}layers.{i}.bias"]
        x = torch.relu(x) if i < 2 else x
    expected = x * state[f"{prefix}regulariser"]
    torch.testing.assert_close(adaptation(encoding, 84).betas[0].detach(), expected)


def test_the_papers_adaptation_refuses_other_networks() -> None:
    with pytest.raises(BadInputError, match="Use the compact one"):
        PaperAdaptation(small_backbone().film_layers)
    with pytest.raises(BadInputError, match="two batch-norms of equal width"):
        PaperAdaptation([FilmLayer("layer1.0.bn1", 4), FilmLayer("layer1.0.bn2", 8)])


def test_the_compact_adaptation_moves_with_its_weights() -> None:
    adaptation = CompactAdaptation([FilmLayer("a", 3), FilmLayer("b", 5)])
    torch.manual_seed(0)
    for parameter in adaptation.parameters():
        torch.nn.init.normal_(parameter, 0, 0.1)
    film = adaptation(torch.ones(64), 96)
    assert [tuple(g.shape) for g in film.gammas] == [tuple(b.shape) for b in film.betas] == [(3,), (5,)]
    assert not torch.allclose(film.gammas[0], torch.ones(3), atol=1e-3)
    assert not torch.allclose(film.betas[1], torch.zeros(5), atol=1e-3)
    assert float(adaptation.regularisation().detach()) > 0
    larger = adaptation(torch.ones(64), 224)
    assert not torch.allclose(film.gammas[0], larger.gammas[0], atol=1e-4)


def test_what_a_task_adds_is_bounded_and_alone_is_regularised() -> None:
    adaptation = CompactAdaptation([FilmLayer("a", 3)])
    torch.manual_seed(0)
    for parameter in adaptation.parameters():
        torch.nn.init.normal_(parameter, 0, 1.0)
    head = adaptation.heads[0]
    with torch.no_grad():
        far = adaptation(1e6 * torch.randn(64), 96)
        most = 0.25 * head.get_parameter("weight").abs().sum(dim=1) + head.get_parameter("bias").abs()
        assert bool(((far.gammas[0] - 1).abs() <= most[:3] + 1e-4).all())
        head.get_parameter("weight").zero_()
        assert float(adaptation.regularisation()) == 0.0  # whatever the static part is
        static, other = (adaptation(encoding, 96).gammas[0] for encoding in (torch.zeros(64), torch.ones(64)))
        assert torch.equal(static, other)
