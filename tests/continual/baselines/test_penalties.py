"""SI and RWalk against what their papers say of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cl_cnaps.continual.batches import quiet_avalanche

with quiet_avalanche():
    from cl_cnaps.continual.baselines.penalties import RiemannianWalk, SynapticIntelligence, snapshot


class Loop:
    """The part of a strategy that a penalty sees, with full-batch gradient descent in float64."""

    def __init__(self, plugin, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(20, 5, generator=generator, dtype=torch.float64)
        self.targets = torch.randint(0, 3, (20,), generator=generator)
        self.model = nn.Linear(5, 3, dtype=torch.float64)
        self.plugin = plugin
        self.loss = torch.zeros(())

    def task(self, iterations, rate=1e-3):
        falls = []
        self.plugin.before_training_exp(self)
        for _ in range(iterations):
            plain = F.cross_entropy(self.model(self.inputs), self.targets)
            falls.append(plain.item())
            self.loss = plain + 0
            self.plugin.before_backward(self)
            self.model.zero_grad()
            self.loss.backward()
            self.plugin.after_backward(self)
            with torch.no_grad():
                for weight in self.model.parameters():
                    weight -= rate * weight.grad
            self.plugin.after_update(self)
        final = F.cross_entropy(self.model(self.inputs), self.targets).item()
        return falls[0] - final if falls else 0.0


def test_si_path_integrals_add_up_to_the_fall_of_the_loss():
    torch.manual_seed(0)
    plugin = SynapticIntelligence(strength=1.0, damping=0.1)
    loop = Loop(plugin)
    fall = loop.task(200)
    paths = sum(path.sum().item() for path in plugin._paths.values())
    assert fall > 0.01
    assert paths == pytest.approx(fall, rel=1e-2)


def test_si_importance_is_path_over_squared_move_and_accumulates():
    torch.manual_seed(0)
    plugin = SynapticIntelligence(strength=1.0, damping=0.1)
    loop = Loop(plugin)
    start = snapshot(loop.model)
    loop.task(50, rate=0.1)
    paths = {name: path.clone() for name, path in plugin._paths.items()}
    plugin.after_training_exp(loop)
    for name, weight in loop.model.named_parameters():
        expected = paths[name].clamp(min=0) / ((weight.detach() - start[name]) ** 2 + 0.1)
        assert torch.allclose(plugin.importances[name], expected)
    first = dict(plugin.importances)
    loop.targets = (loop.targets + 1) % 3
    loop.task(5, rate=0.1)
    plugin.after_training_exp(loop)
    assert all(bool((plugin.importances[name] >= first[name]).all()) for name in first)


@pytest.mark.parametrize("plugin", [SynapticIntelligence(50.0, 0.1), RiemannianWalk(50.0, 0.1, 10)])
def test_the_method_sees_the_gradient_of_the_loss_without_the_penalty(plugin):
    torch.manual_seed(0)
    loop = Loop(plugin)
    loop.task(30, rate=0.1)
    plugin.after_training_exp(loop)
    plugin.before_training_exp(loop)
    with torch.no_grad():
        for weight in loop.model.parameters():
            weight += 0.3
    plain = F.cross_entropy(loop.model(loop.inputs), loop.targets)
    alone = torch.autograd.grad(plain, list(loop.model.parameters()))
    loop.loss = F.cross_entropy(loop.model(loop.inputs), loop.targets)
    plugin.before_backward(loop)
    loop.model.zero_grad()
    loop.loss.backward()
    for (name, weight), gradient in zip(loop.model.named_parameters(), alone, strict=True):
        assert not torch.allclose(weight.grad, gradient), name
        assert torch.allclose(plugin._loss_gradients(loop.model)[name], gradient), name


@pytest.mark.parametrize("iterations", [1, 3, 10, 23])
def test_rwalk_has_scores_however_short_the_task(iterations):
    torch.manual_seed(0)
    plugin = RiemannianWalk(strength=1.0, fisher_rate=0.1, interval=10)
    loop = Loop(plugin)
    loop.task(iterations, rate=0.1)
    plugin.after_training_exp(loop)
    scores = torch.cat([score.flatten() for score in plugin._scores.values()])
    importances = torch.cat([importance.flatten() for importance in plugin.importances.values()])
    assert bool((scores > 0).any())
    assert bool(torch.isfinite(importances).all())
    assert bool((importances >= 0).all())
    assert importances.max() <= 2


def test_rwalk_scores_one_interval_as_the_paper_does():
    torch.manual_seed(0)
    plugin = RiemannianWalk(strength=1.0, fisher_rate=1.0, interval=5)
    loop = Loop(plugin)
    start = snapshot(loop.model)
    loop.task(1, rate=0.1)
    plugin.after_training_exp(loop)
    for name, weight in loop.model.named_parameters():
        # One step of gradient descent: the fall is rate * g^2, the Fisher information g^2.
        move = weight.detach() - start[name]
        squared = (move / 0.1) ** 2
        expected = 0.1 * squared / (squared * move**2 / 2 + torch.finfo(torch.float64).eps)
        assert torch.allclose(plugin._scores[name], expected)


def test_anchors_do_not_follow_the_weights():
    plugin = SynapticIntelligence(strength=1.0, damping=0.1)
    loop = Loop(plugin)
    loop.task(5, rate=0.1)
    plugin.after_training_exp(loop)
    before = {name: anchor.clone() for name, anchor in plugin.anchors.items()}
    loop.targets = (loop.targets + 1) % 3
    loop.task(5, rate=0.1)
    assert all(torch.equal(plugin.anchors[name], before[name]) for name in before)
    assert all(not torch.equal(weight, before[name]) for name, weight in loop.model.named_parameters())
