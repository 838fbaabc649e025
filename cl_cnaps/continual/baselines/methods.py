"""Network baselines as parts of one training loop: plugins, a wrapper of the network, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from avalanche.training.plugins import EWCPlugin, LwFPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from torch import Tensor, nn
from torch.func import functional_call

from cl_cnaps.continual.baselines.penalties import RiemannianWalk, SynapticIntelligence
from cl_cnaps.continual.baselines.settings import (
    EwcSettings,
    LwfSettings,
    NetworkSettings,
    ReplaySettings,
    RwalkSettings,
    SiSettings,
    VclSettings,
)


class MeanField(nn.Module):
    """A network whose weights are independent Gaussians: posterior q, and the prior it is pulled to.

    Nguyen et al., "Variational Continual Learning", ICLR 2018. `means` is the network itself; each of its
    parameters has a log standard deviation beside it. The prior of a task is the posterior of the task before.

    The prior of the first task is centred on the network's random initial weights, not on zero: with few images
    per task most weights feel the prior alone, which would erase the random features that later tasks learn
    from. Deviations are relative to the size (root mean square) of a layer's initial weights, so that the
    same settings suit wide and narrow layers.
    """

    def __init__(self, network: nn.Module, prior_deviation: float, initial_deviation: float) -> None:
        super().__init__()
        self.means = network
        self.log_deviations = nn.ParameterList()
        for number, weight in enumerate(network.parameters()):
            start = weight.detach()
            size = start.square().mean().sqrt().clamp(min=torch.finfo(start.dtype).tiny)
            self.log_deviations.append(
                nn.Parameter((size * initial_deviation).log().expand_as(start).clone())
            )
            self.register_buffer(f"prior_mean_{number}", start.clone())
            prior_log = (size * prior_deviation).log().expand_as(start).clone()
            self.register_buffer(f"prior_log_deviation_{number}", prior_log)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits under one draw of all weights."""
        return self._sampled(inputs, None)

    def divergence(self) -> Tensor:
        """KL(q || prior), summed over all weights."""
        terms = []
        for number, (mean, log_deviation) in enumerate(self._posterior()):
            prior_mean, prior_log = self._prior(number)
            ratio = 2 * (log_deviation - prior_log)
            shift = (mean - prior_mean).square() * torch.exp(-2 * prior_log)
            terms.append((ratio.exp() - 1 - ratio + shift).sum() / 2)
        return torch.stack(terms).sum()

    @torch.no_grad()
    def posterior_to_prior(self) -> None:
        """The posterior of the task just learned becomes the prior of the next."""
        for number, (mean, log_deviation) in enumerate(self._posterior()):
            prior_mean, prior_log = self._prior(number)
            prior_mean.copy_(mean)
            prior_log.copy_(log_deviation)

    @torch.no_grad()
    def predictive(self, inputs: Tensor, classes_K: Tensor, samples: int, seed: int) -> Tensor:
        """N x K class probabilities among `classes_K`, averaged over weight draws that depend on `seed` alone."""
        generator = torch.Generator(inputs.device).manual_seed(seed)
        draws = [self._sampled(inputs, generator)[:, classes_K].softmax(dim=1) for _ in range(samples)]
        return torch.stack(draws).mean(dim=0)

    def _sampled(self, inputs: Tensor, generator: torch.Generator | None) -> Tensor:
        weights = {}
        for (name, mean), log_deviation in zip(
            self.means.named_parameters(), self.log_deviations, strict=True
        ):
            noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
            weights[name] = mean + log_deviation.exp() * noise
        logits: Tensor = functional_call(self.means, weights, (inputs,))
        return logits

    def _posterior(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.means.parameters(), self.log_deviations, strict=True))

    def _prior(self, number: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"prior_mean_{number}"), self.get_buffer(f"prior_log_deviation_{number}")


class VariationalPlugin(SupervisedPlugin):  # type: ignore[misc, unused-ignore]
    """Adds the divergence, shared out over the task's images, to the loss of a `MeanField` network."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def before_backward(self, strategy: Any, **_kwargs: Any) -> None:
        """Complete the (negative) variational bound."""
        strategy.loss += self.strength * strategy.model.divergence() / len(strategy.experience.dataset)

    def after_training_exp(self, strategy: Any, **_kwargs: Any) -> None:
        """Hand the posterior on."""
        strategy.model.posterior_to_prior()


@dataclass(frozen=True)
class Method:
    """What sets a method apart from naive fine-tuning."""

    plugins: tuple[Any, ...] = ()
    """Avalanche plugins, in order."""
    wrap: Callable[[nn.Module], nn.Module] = lambda network: network
    """The model that is trained, made of the plain network."""
    carried: Callable[[], Iterable[Tensor]] = tuple
    """Tensors kept from task to task beside the model's parameters."""
    rehearses: bool = False
    """Whether images of all earlier classes are present in the data of every step."""


def method(name: str, settings: NetworkSettings) -> Method:
    """The method called `name`."""
    match settings:
        case ReplaySettings():
            return _replay(settings)
        case EwcSettings():
            return _ewc(settings)
        case SiSettings():
            si = SynapticIntelligence(settings.strength, settings.damping)
            return Method((si,), carried=si.carried)
        case RwalkSettings():
            rwalk = RiemannianWalk(settings.strength, settings.fisher_rate, settings.interval)
            return Method((rwalk,), carried=rwalk.carried)
        case LwfSettings():
            return _lwf(settings)
        case VclSettings():
            return _vcl(settings)
        case _:
            return Method(rehearses=name == "joint")


class Replay(ReplayPlugin):  # type: ignore[misc, unused-ignore]
    """Avalanche's replay, filling its memory by the call that is not deprecated (the other warns at every task)."""

    def after_training_exp(self, strategy: Any, **_kwargs: Any) -> None:
        """Draw this task's share of the memory."""
        self.storage_policy.post_adapt(strategy, strategy.experience)


def _replay(settings: ReplaySettings) -> Method:
    buffer = ClassBalancedBuffer(max_size=settings.memory, adaptive_size=True)
    plugin = Replay(mem_size=settings.memory, storage_policy=buffer)

    def carried() -> Iterable[Tensor]:
        for image, label, _ in buffer.buffer:
            yield image
            yield torch.as_tensor(label)

    return Method((plugin,), carried=carried, rehearses=True)


def _ewc(settings: EwcSettings) -> Method:
    plugin = EWCPlugin(ewc_lambda=settings.strength, mode="separate")

    def carried() -> Iterable[Tensor]:
        for kept in (*plugin.saved_params.values(), *plugin.importances.values()):
            for values in kept.values():
                yield values.data

    return Method((plugin,), carried=carried)


def _lwf(settings: LwfSettings) -> Method:
    plugin = LwFPlugin(alpha=settings.strength, temperature=settings.temperature)

    def carried() -> Iterable[Tensor]:
        teacher = plugin.lwf.prev_model
        return () if teacher is None else teacher.parameters()

    return Method((plugin,), carried=carried)


def _vcl(settings: VclSettings) -> Method:
    # The prior of the next task is the posterior itself, so nothing is carried beside the model's parameters.
    def wrap(network: nn.Module) -> nn.Module:
        return MeanField(network, settings.prior_deviation, settings.initial_deviation)

    return Method((VariationalPlugin(settings.strength),), wrap=wrap)
