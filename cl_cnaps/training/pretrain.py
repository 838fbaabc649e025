"""Supervised training of a backbone, before it is frozen for meta-training."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.data.atomic import write_text
from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.tensor_files import write_tensors
from cl_cnaps.training.checkpoint import (
    TrainingLog,
    check_no_checkpoint,
    check_same_recipe,
    load_state,
    parse_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from cl_cnaps.training.metatrain import NOT_FINITE, Ending, Watch
from cl_cnaps.training.pretrain_data import ImageBatch, ImageBatches, PretrainRecipe
from cl_cnaps.training.ranks import Interruption, lost_workers, one_by_one
from cl_cnaps.training.step import StepScore, gradient_norm

BACKBONE = "backbone.safetensors"


@dataclass
class PretrainProgress:
    """How far a pre-training is."""

    batches: int = 0
    accuracy: float | None = None
    """On validation images, after the last whole epoch."""
    seconds: float = 0.0


class _Classifier(nn.Module):
    """The backbone's network, all of it learned, under a linear classifier."""

    def __init__(self, backbone: Backbone, n_classes: int, seed: int) -> None:
        super().__init__()
        self.network = backbone.network.requires_grad_(True)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.classifier = nn.Linear(backbone.info.width, n_classes)

    def forward(self, prepared: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.network(prepared))
        return logits


class Pretraining:
    """One supervised training; `run` goes on until there is a reason to end."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        backbone: Backbone,
        batches: ImageBatches,
        folder: Path,
        device: torch.device,
        watch: Watch,
        *,
        about: Mapping[str, Any],
        resume: bool = False,
        workers: int = 0,
    ) -> None:
        """Begin a training in `folder`, or go on with the one there; `about` goes into the file that comes out."""
        self.recipe, self.batches, self.folder, self.watch = recipe, batches, folder, watch
        self.device, self.workers, self.about = device, workers, dict(about)
        self.backbone = backbone.to(device)
        self.model = _Classifier(backbone, len(batches.classes), recipe.seed).to(device)
        self.optimiser = torch.optim.SGD(
            self.model.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.progress = PretrainProgress()
        self.identity: dict[str, Any] = json.loads(
            json.dumps(
                {
                    **recipe.as_json(),
                    "data_digest": batches.pool.source.digest(),
                    "start_digest": backbone.digest(),
                }
            )
        )
        if resume:
            saved = parse_checkpoint(read_checkpoint(folder))
            check_same_recipe(saved.recipe, self.identity)
            load_state(saved, self.model, self.optimiser)
            self.progress = PretrainProgress(**saved.progress)
        else:
            check_no_checkpoint(folder)

    def run(self) -> Ending:
        """Train to the end, or until a signal or a bad number; at the end the backbone's file is written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "recipe.json", json.dumps(self.identity, indent=2) + "\n")
        total = self.recipe.epochs * self.batches.per_epoch
        remaining = range(self.progress.batches, total)
        log_file = TrainingLog(self.folder, self.progress.batches, "batches")
        with Interruption() as stop, lost_workers(), log_file as log:
            for batch in one_by_one(self.batches, remaining, self.workers):
                started = time.monotonic()
                if stop():
                    self._save()
                    return Ending.INTERRUPTED
                score = self._step(batch)
                if score is None:
                    self._save()
                    self._report(batch)
                    return Ending.NOT_FINITE
                self.progress.batches = batch.number + 1
                self._log(log.add, score, total, started)
                if (batch.number + 1) % self.recipe.checkpoint_every == 0:
                    self._save()
        self._save()
        self._write_backbone()
        return Ending.FINISHED

    def _step(self, batch: ImageBatch) -> StepScore | None:
        """One update; None, before it, if the loss or the gradient is not finite."""
        self.model.train()
        rate = self.recipe.rate(batch.number // self.batches.per_epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        before = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        labels = batch.labels.to(self.device)
        logits = self.model(self.backbone.prepare(batch.images))
        loss = nn.functional.cross_entropy(logits, labels)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = gradient_norm(self.model.parameters())
        if not math.isfinite(float(loss.detach())) or not math.isfinite(norm):
            for name, buffer in self.model.named_buffers():
                buffer.copy_(before[name])  # batch-norms have moved their statistics
            return None
        self.optimiser.step()
        accuracy = float((logits.detach().argmax(dim=1) == labels).double().mean())
        return StepScore(float(loss.detach()), accuracy, norm, rate)

    def _log(
        self,
        note: Callable[[str, int, Mapping[str, Any]], None],
        score: StepScore,
        total: int,
        started: float,
    ) -> None:
        progress = self.progress
        numbers = {"loss": score.loss, "accuracy": score.accuracy, "learning_rate": score.learning_rate}
        note("step", progress.batches, numbers)
        if progress.batches % self.batches.per_epoch == 0 and len(self.batches.validation):
            progress.accuracy = self._validate()
            note("validation", progress.batches, {"accuracy": progress.accuracy})
            epoch = progress.batches // self.batches.per_epoch
            self.watch.say(f"after {epoch} epochs: {100 * progress.accuracy:.2f} % of the validation images")
        progress.seconds += time.monotonic() - started
        rate = progress.batches / progress.seconds
        self.watch.step(progress.batches, total, score, (total - progress.batches) / rate, rate)

    @torch.no_grad()
    def _validate(self) -> float:
        self.model.eval()
        right, rows = 0, self.batches.validation
        for start in range(0, len(rows), self.recipe.batch_size):
            batch = self.batches.load(rows[start : start + self.recipe.batch_size])
            logits = self.model(self.backbone.prepare(batch.images))
            right += int((logits.argmax(dim=1).cpu() == batch.labels).sum())
        return right / len(rows)

    def _save(self) -> None:
        save_checkpoint(self.folder, self.identity, self.progress, self.model, self.optimiser)

    def _write_backbone(self) -> None:
        facts = {**self.about, "recipe": self.identity, "accuracy": self.progress.accuracy}
        write_tensors(
            self.folder / BACKBONE,
            self.model.network.state_dict(),
            {"format": "cl-cnaps backbone 1", "training": json.dumps(facts, allow_nan=False)},
        )

    def _report(self, batch: ImageBatch) -> None:
        facts = {"batch": batch.number, "epoch": batch.number // self.batches.per_epoch}
        write_text(self.folder / NOT_FINITE, json.dumps(facts) + "\n")
        self.watch.say(
            f"batch {batch.number}: the loss or its gradient is not finite; stopped before the update. "
            f"Its number is in {self.folder / NOT_FINITE}; a lower learning_rate may help"
        )
