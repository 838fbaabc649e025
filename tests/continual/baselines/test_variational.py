from __future__ import annotations

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from cl_cnaps.continual.batches import quiet_avalanche

with quiet_avalanche():
    from cl_cnaps.continual.baselines.methods import MeanField


def field(**changes):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5)).double()
    return MeanField(network, **{"prior_deviation": 1.0, "initial_deviation": 0.3, **changes})


def test_divergence_is_that_of_torch_distributions():
    model = field()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    expected = 0.0
    for number, (mean, log_deviation) in enumerate(
        zip(model.means.parameters(), model.log_deviations, strict=True)
    ):
        prior = Normal(
            model.get_buffer(f"prior_mean_{number}"), model.get_buffer(f"prior_log_deviation_{number}").exp()
        )
        expected += kl_divergence(Normal(mean, log_deviation.exp()), prior).sum()
    assert torch.allclose(model.divergence(), expected)


def test_a_posterior_handed_on_is_no_longer_away_from_its_prior():
    model = field()
    assert model.divergence() > 1
    model.posterior_to_prior()
    assert model.divergence().abs() < 1e-9
    with torch.no_grad():
        next(model.means.parameters()).add_(0.1)
    assert model.divergence() > 0.1


def test_without_deviation_it_is_the_network():
    model = field(initial_deviation=1e-12)
    inputs = torch.randn(7, 4, dtype=torch.float64)
    assert torch.allclose(model(inputs), model.means(inputs), atol=1e-9)
    allowed = torch.tensor([1, 4])
    expected = model.means(inputs)[:, allowed].softmax(dim=1)
    assert torch.allclose(model.predictive(inputs, allowed, samples=3, seed=0), expected, atol=1e-9)


def test_prediction_depends_on_its_seed_alone():
    model = field()
    inputs, allowed = torch.randn(7, 4, dtype=torch.float64), torch.tensor([0, 2, 3])
    torch.manual_seed(1)
    one = model.predictive(inputs, allowed, samples=4, seed=5)
    torch.manual_seed(2)
    assert torch.equal(one, model.predictive(inputs, allowed, samples=4, seed=5))
    # Weights, not outputs, are drawn: the same whatever the other images of the batch are.
    assert torch.allclose(one[:3], model.predictive(inputs[:3], allowed, samples=4, seed=5))
    assert not torch.equal(one, model.predictive(inputs, allowed, samples=4, seed=6))
    assert torch.allclose(one.sum(dim=1), torch.ones(7, dtype=torch.float64))


def test_gradients_reach_means_and_deviations():
    model = field()
    model(torch.randn(7, 4, dtype=torch.float64)).square().sum().backward()
    assert all(weight.grad is not None and bool((weight.grad != 0).any()) for weight in model.parameters())
