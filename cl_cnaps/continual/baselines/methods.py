"""Network baselines as parts of one training loop: plugins, a wrapper of the network, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from avalanche.training.plugins import EWCPlugin, LwFPlugin, ReplayPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from torch import Tensor, nn

from cl_cnaps.continual.baselines.riemannian_walk import RiemannianWalk
from cl_cnaps.continual.baselines.settings import (
    EwcSettings,
    LwfSettings,
    NetworkSettings,
    ReplaySettings,
    RwalkSettings,
    SiSettings,
    VclSettings,
)
from cl_cnaps.continual.baselines.synaptic_intelligence import SynapticIntelligence
from cl_cnaps.continual.baselines.variational import MeanField, VariationalPlugin


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
