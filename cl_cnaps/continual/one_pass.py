"""An Avalanche strategy without an optimizer: it learns each experience as a whole, in one pass.

As Avalanche's StreamingLDA is. Every image counts once, in the loader's order, and plugins see the usual events.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_cnaps.continual.batches import plain_loader
from cl_cnaps.errors import BadInputError


class OnePassStrategy(SupervisedTemplate):  # type: ignore[misc]  # Avalanche has no types
    """Subclasses say how an experience is learned; Avalanche's loop, plugins and loggers do the rest."""

    @abstractmethod
    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience that these batches make up; return the logits of its images for plugins."""

    def make_optimizer(self, **_: Any) -> None:
        """Nothing is optimised."""

    def model_adaptation(self, model: nn.Module | None = None) -> nn.Module:
        """The model as it is: Avalanche's own adaptation would let evaluation data grow it."""
        return (self.model if model is None else model).to(self.device)

    def check_model_and_optimizer(self, **_: Any) -> None:
        """Put the model on its device; there is no optimizer to reset."""
        self.model = self.model_adaptation()

    def make_train_dataloader(self, **loader: Any) -> None:
        """Every image once, in order: Avalanche's balanced loader repeats images of smaller tasks."""
        self.dataloader = plain_loader(self.adapted_dataset, self.train_mb_size, loader)

    def make_eval_dataloader(self, **loader: Any) -> None:
        """Every image once, in order."""
        self.dataloader = plain_loader(self.adapted_dataset, self.eval_mb_size, loader)

    def training_epoch(self, **kwargs: Any) -> None:
        """Learn the experience as a whole, then show plugins its batches with the model's answers."""
        batches = list(self.dataloader)
        if not batches:
            raise BadInputError(
                f"experience {self.experience.current_experience} has no images to learn from"
            )
        outputs = self.learn_batches(batches)
        for self.mbatch, output in with_parts(batches, outputs):
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self.loss = self._make_empty_loss()
            self._before_forward(**kwargs)
            self.mb_output = output
            self._after_forward(**kwargs)
            self.loss = self.loss + self.criterion()
            self._before_backward(**kwargs)
            self._after_backward(**kwargs)
            self._before_update(**kwargs)
            self._after_update(**kwargs)
            self._after_training_iteration(**kwargs)


def with_parts(batches: Sequence[Any], outputs: Tensor) -> Iterable[tuple[Any, Tensor]]:
    """Each batch with its rows of the outputs."""
    return zip(batches, torch.split(outputs, [len(batch[1]) for batch in batches]), strict=True)
