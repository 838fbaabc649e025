"""Running statistics of batch-norms, moved task after task in the tasks' order, whichever process saw which task."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics:
    """Takes each task's effect on the running statistics apart, to be applied in order at the end of a step.

    In training a batch-norm moves its statistics r to (1 - m) r + m b, for each batch b it sees, and does not read
    them. Started from r = 0 it leaves behind what the task adds; n batches also shrink what was there before by
    (1 - m)^n. So every process can apply every task's effect, in the order of the tasks, to the same start.
    """

    def __init__(self, module: nn.Module) -> None:
        self._norms = [
            m
            for m in module.modules()
            if isinstance(m, nn.BatchNorm2d) and m.track_running_stats and m.training
        ]
        self._before = [buffer.clone() for buffer in self._buffers()]
        self._batches_before = [m.get_buffer("num_batches_tracked").clone() for m in self._norms]
        self.width = 1 + sum(buffer.numel() for buffer in self._before) if self._norms else 0
        """Numbers that one task's effect takes."""

    def _buffers(self) -> list[Tensor]:
        return [m.get_buffer(name) for m in self._norms for name in ("running_mean", "running_var")]

    def begin_task(self) -> None:
        """Start a task from nothing."""
        for norm in self._norms:
            norm.reset_running_stats()
            norm.get_buffer("running_var").zero_()

    def effect(self) -> Tensor:
        """What the task did: how many batches it was, then what it added; float64, `width` numbers."""
        if not self._norms:
            return torch.zeros(0, dtype=torch.float64)
        batches = self._norms[0].get_buffer("num_batches_tracked").reshape(1)
        return torch.cat([part.flatten().double().cpu() for part in (batches, *self._buffers())])

    def restore(self) -> None:
        """Put back the statistics as they were before the step."""
        for buffer, before in zip(self._buffers(), self._before, strict=True):
            buffer.copy_(before)
        for norm, batches in zip(self._norms, self._batches_before, strict=True):
            norm.get_buffer("num_batches_tracked").copy_(batches)

    def apply(self, effects_TW: Tensor) -> None:
        """Move the statistics from before the step by the tasks' effects, in their order."""
        self.restore()
        for effect_W in effects_TW if self._norms else ():
            batches, *added = effect_W.split([1, *(buffer.numel() for buffer in self._before)])
            for norm in self._norms:
                norm.get_buffer("num_batches_tracked").add_(int(batches))
            momentum = self._norms[0].momentum
            assert momentum is not None
            for buffer, part in zip(self._buffers(), added, strict=True):
                buffer.mul_((1 - momentum) ** int(batches)).add_(part.to(buffer).view_as(buffer))
