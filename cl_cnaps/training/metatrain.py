"""Episodic training of a model's adaptation, from a recipe to a weight file."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch

from cl_cnaps.data.atomic import write_text
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsModel, make_model
from cl_cnaps.models.weights import load_weights, save_weights
from cl_cnaps.torch_setup import release_spare_memory
from cl_cnaps.training.checkpoint import (
    BEST,
    Progress,
    TrainingLog,
    averaged,
    check_no_checkpoint,
    check_same_recipe,
    load_state,
    parse_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from cl_cnaps.training.ranks import Interruption, Ranks, lost_workers, one_by_one
from cl_cnaps.training.recipe import Recipe
from cl_cnaps.training.step import (
    AveragedWeights,
    BadTask,
    StepScore,
    StoppedInStep,
    image_size,
    share,
    train_step,
)
from cl_cnaps.training.tasks import RecipeData, Task
from cl_cnaps.training.validation import (
    InterruptedValidationError,
    Scores,
    ValidationTasks,
    mean,
    validate,
)


def build_model(recipe: Recipe) -> tuple[CnapsModel, Mapping[str, Any]]:
    """The recipe's model before its first step, and what it started from."""
    model, start = _started(recipe)
    if recipe.temperature is not None:
        torch.nn.init.constant_(model.log_temperature, math.log(recipe.temperature))
    return model, start


def _started(recipe: Recipe) -> tuple[CnapsModel, Mapping[str, Any]]:
    """A new model, or one that has what it can have of the weights it starts from.

    With `start`, all tensors of those weights that have the same name and shape are taken over; so simple weights
    start a transductive model, of which only the LSTM is new. Their backbone is taken too, unless the recipe
    names another.
    """
    config, size = recipe.model, recipe.model.image_size
    if recipe.start is None:
        backbone = load_backbone(
            config.backbone, weights=recipe.backbone_weights, image_size=size, seed=recipe.seed
        )
        if backbone.info.pretraining == "none" and recipe.backbone_weights != "random":
            raise BadInputError(
                f"{config.backbone} has no weights of its own: give --backbone-weights FILE, such as one made by "
                "`cl-cnaps pretrain`, or `random` to adapt an untrained network"
            )
        return make_model(config, backbone, recipe.seed), {}
    other, file = load_weights(recipe.start, **({} if size is None else {"image_size": size}))
    if file.config.backbone != config.backbone or recipe.backbone_weights != "auto":
        raise BadInputError(
            f"the recipe starts from {recipe.start}, which brings its own {file.config.backbone}; "
            f"leave backbone_weights out, and let the model's backbone be the same (it is {config.backbone})"
        )
    model = make_model(config, other.backbone, recipe.seed)
    given, own = (_trained_tensors(each) for each in (other, model))
    taken = {name for name in own if name in given and given[name].shape == own[name].shape}
    if not any(name.startswith("adaptation.") for name in taken):
        raise BadInputError(f"cannot start from {recipe.start}: nothing of its adaptation fits this model")
    model.load_state_dict({name: given[name] for name in taken}, strict=False)
    return model, {"weights": file.name, "digest": file.digest, "new": sorted(set(own) - taken)}


def _trained_tensors(model: CnapsModel) -> dict[str, Any]:
    return {name: value for name, value in model.state_dict().items() if not name.startswith("backbone.")}


NOT_FINITE = "not_finite.json"
_HEAD_PARTS = ("classifier.", "fit_log_weights", "log_temperature")
"""What comes after the features."""
_CALIBRATION_TASKS = 64
"""Training tasks by which encodings are standardised before the first step."""
_SPARE = 6 << 30
"""Bytes that are kept from step to step: the next tasks need them again, and new pages take long."""
_FROZEN_PARTS = ("backbone.",)
"""Parts of the model that never change and are not in checkpoints."""


class Ending(Enum):
    """Why a training ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    WORSE_THAN_FROZEN = "worse than frozen features"
    NOT_FINITE = "not finite"


class Watch(Protocol):
    """Shows how a training goes."""

    def step(self, tasks: int, total: int, score: StepScore, seconds_left: float, rate: float) -> None:
        """Show a step; `rate` is in tasks per second."""

    def validated(self, tasks: int, scores: Scores, best: bool) -> None:
        """Show a validation of the weights."""

    def validating(self, source: str, done: int, total: int) -> None:
        """Show that tasks of a validation, or of the test, were scored."""

    def say(self, text: str) -> None:
        """Show a sentence."""


Note = Callable[[str, int, Mapping[str, Any]], None]
"""Writes numbers of one kind that belong to a number of tasks."""


class MetaTraining:
    """One training: its model, data and progress; `run` goes on until there is a reason to end."""

    def __init__(
        self,
        recipe: Recipe,
        model: CnapsModel,
        data: RecipeData,
        folder: Path,
        ranks: Ranks,
        watch: Watch,
        *,
        about: Mapping[str, Any],
        resume: bool = False,
        workers: int = 0,
    ) -> None:
        """Begin a training in `folder`, or go on with the one there.

        Args:
            recipe: what to do.
            model: the model to train, on the device of `ranks`.
            data: the recipe's tasks.
            folder: where the first process writes.
            ranks: the processes that train together.
            watch: shows how it goes (in the first process).
            about: what the weight file has of its making, beyond the recipe and its data.
            resume: go on from the checkpoint in the folder.
            workers: processes that load tasks ahead; 0 loads them in this one.
        """
        self.recipe, self.model, self.data = recipe, model, data
        self.folder, self.ranks, self.watch = folder, ranks, watch
        self.workers = workers
        self.about = {**about, "processes": ranks.world}
        self.progress = Progress()
        if recipe.training.learn == "head":
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name.startswith(_HEAD_PARTS))
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.average = AveragedWeights(model, recipe.training.average)
        self.optimiser = torch.optim.Adam(parameters, lr=recipe.training.learning_rate)
        digests = {name: facts["digest"] for name, facts in data.sources.items()}
        self.identity: dict[str, Any] = json.loads(
            json.dumps(
                {**recipe.as_json(), "backbone_digest": model.backbone.digest(), "data_digests": digests}
            )
        )
        if resume:
            self._resume()
        elif ranks.first:
            check_no_checkpoint(folder)
        self._saved_at = self.progress.tasks

    @property
    def own_beats_static(self) -> bool | None:
        """Whether the best weights did better with tasks' own encodings than with one for all; None before any."""
        best = self.progress.best
        return None if best is None else best["mean"] > mean(best["scores"]["static"])

    def _resume(self) -> None:
        content = read_checkpoint(self.folder) if self.ranks.first else None
        saved = parse_checkpoint(self.ranks.share(content))
        check_same_recipe(saved.recipe, self.identity)
        load_state(saved, self.model, self.optimiser, leave_out=_FROZEN_PARTS)
        self.average.load(averaged(saved))
        self.progress = Progress(**saved.progress)

    def run(self) -> Ending:
        """Train to the end, or until a signal, a bad number, or adaptation that makes things worse."""
        if self.ranks.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / "recipe.json", json.dumps(self.identity, indent=2) + "\n")
            with TrainingLog(self.folder, self.progress.tasks) as log:
                return self._run(log.add)
        return self._run(lambda *_: None)

    def _run(self, note: Note) -> Ending:
        total = self.recipe.training.tasks
        with Interruption() as stop, lost_workers():
            if self.progress.tasks == 0 and self.progress.validated is None:
                self._calibrate()
            tasks = self._tasks()
            while True:
                started = time.monotonic()
                try:
                    if self._validation_is_due():
                        with self.average.in_place():
                            self._validate(note, stop)
                        self.progress.seconds += time.monotonic() - started
                        self._save()
                        patience = self.recipe.validation.patience
                        if patience and self.progress.worse_in_a_row >= patience:
                            return Ending.WORSE_THAN_FROZEN
                    if self.progress.tasks >= total:
                        return Ending.FINISHED
                    started = time.monotonic()
                    bad = self._step(tasks, note, stop, started)
                except (StoppedInStep, InterruptedValidationError):
                    self._save()
                    return Ending.INTERRUPTED
                if bad is not None:
                    self._save()
                    self._report(bad)
                    return Ending.NOT_FINITE
                if self.progress.tasks - self._saved_at >= self.recipe.training.checkpoint_every:
                    self._save()

    @torch.no_grad()
    def _calibrate(self) -> None:
        """Set the standardisation of encodings by the first training tasks, before anything is learned."""
        supports = [
            self.data.training[index].batch.support_images
            for index in range(min(_CALIBRATION_TASKS, self.recipe.training.tasks))
        ]
        self.model.eval().task_encoder.calibrate([self.model.backbone.prepare(each) for each in supports])

    def _tasks(self) -> Iterator[Task]:
        """This process's tasks from here to the end."""
        steps = range(self.progress.tasks, self.recipe.training.tasks, self.recipe.training.tasks_per_step)
        mine = (index for first in steps for index in self._share(first)[1])
        return one_by_one(self.data.training, mine, self.workers)

    def _share(self, first: int) -> tuple[range, list[int]]:
        """Return the tasks of the step that begins with task `first`, and which of them are this process's."""
        training = self.recipe.training
        step = range(first, min(first + training.tasks_per_step, training.tasks))
        return step, share(step, self.ranks, self.data.training.images)

    def _step(
        self, tasks: Iterator[Task], note: Note, stop: Callable[[], bool], started: float
    ) -> BadTask | None:
        training, progress = self.recipe.training, self.progress
        step, own = self._share(progress.tasks)
        size = image_size(training, self.recipe.seed, step.start, self.model.backbone.info.image_size)
        with self.model.at_image_size(size):
            score = train_step(
                self.model, self.optimiser, islice(tasks, len(own)), step, training, self.ranks, stop
            )
        release_spare_memory(_SPARE)
        if isinstance(score, BadTask):
            return score
        self.average.update()
        digests = (bytes.fromhex(self.data.training.episode(index).digest()) for index in step)
        progress.episodes = hashlib.sha256(b"".join([progress.episodes.encode(), *digests])).hexdigest()
        progress.tasks = step.stop
        seconds = time.monotonic() - started
        progress.seconds += seconds
        note(
            "step",
            progress.tasks,
            {
                "loss": score.loss,
                "accuracy": score.accuracy,
                "gradient_norm": score.gradient_norm,
                "learning_rate": score.learning_rate,
                "image_size": size,
                "temperature": float(self.model.temperature.detach()),
                "tasks_per_second": len(step) / seconds,
            },
        )
        if self.ranks.first:
            rate = progress.tasks / progress.seconds
            self.watch.step(
                progress.tasks, training.tasks, score, (training.tasks - progress.tasks) / rate, rate
            )
        return None

    def _validation_is_due(self) -> bool:
        tasks, before, every = self.progress.tasks, self.progress.validated, self.recipe.validation.every
        if before is None or tasks // every > before // every:
            return True
        return tasks >= self.recipe.training.tasks and before < tasks

    def _validate(self, note: Note, stop: Callable[[], bool]) -> None:
        progress, model, validation = self.progress, self.model.eval(), self.recipe.validation
        sizes = validation.image_sizes or (model.backbone.info.image_size,)
        watched = self.watch.validating if self.ranks.first else lambda *_: None
        tasks = ValidationTasks(self.data.validation, validation.tasks, sizes, self.ranks, stop, watched)
        scores, encodings = validate(model, tasks, progress.frozen)
        means = {kind: mean(by_source) for kind, by_source in scores.items()}
        # Transductive+ is nothing but its training: what it starts from is none of it, however good.
        begun = self.recipe.model.variant == "plus" and (progress.best or {}).get("tasks") == 0
        best = progress.best is None or begun or means["own"] > progress.best["mean"]
        progress.frozen = scores["frozen"]
        progress.validated = progress.tasks
        worse = means["own"] < means["frozen"]
        progress.worse_in_a_row = progress.worse_in_a_row + 1 if worse and progress.tasks else 0
        if best:
            progress.best = {"tasks": progress.tasks, "mean": means["own"], "scores": scores}
            progress.best["encodings"] = {
                name: [round(value, 4) for value in mean_64.tolist()] for name, mean_64 in encodings.items()
            }
        if not self.ranks.first:
            return
        if best:
            save_weights(self.folder / BEST, model, self._training_facts())
        note("validation", progress.tasks, {**scores, "mean": means})
        self.watch.validated(progress.tasks, scores, best)

    def test(self) -> Scores:
        """Return the accuracy of the best weights on the test tasks, which decide nothing; for the first process."""
        if not self.data.test:
            return {}
        sizes = self.recipe.validation.image_sizes or (self.model.backbone.info.image_size,)
        model = load_weights(self.folder / BEST)[0].to(self.ranks.device).eval()
        alone = Ranks(0, 1, 0, self.ranks.device)
        tasks = ValidationTasks(
            self.data.test, self.recipe.test_tasks, sizes, alone, progress=self.watch.validating
        )
        scores, _ = validate(model, tasks)
        with TrainingLog(self.folder, self.progress.tasks) as log:
            log.add("test", self.progress.tasks, scores)
        return scores

    def _training_facts(self) -> dict[str, Any]:
        """Return how the weights of this moment were made, for their file."""
        return {
            "recipe": self.recipe.as_json(),
            "seed": self.recipe.seed,
            "data": dict(self.data.sources),
            "tasks": self.progress.tasks,
            "episodes_digest": self.progress.episodes,
            "validation": (self.progress.best or {}).get("scores"),
            "encodings": (self.progress.best or {}).get("encodings"),
            **self.about,
        }

    def _save(self) -> None:
        if self.ranks.first:
            save_checkpoint(
                self.folder,
                self.identity,
                self.progress,
                self.model,
                self.optimiser,
                leave_out=_FROZEN_PARTS,
                average=self.average.state(),
            )
        self._saved_at = self.progress.tasks

    def _report(self, bad: BadTask) -> None:
        """Write which episode went wrong, so that it can be looked at."""
        if not self.ranks.first:
            return
        episode = self.data.training.episode(bad.index)
        facts = {
            "task": bad.index,
            "reason": bad.reason,
            "seed": episode.seed,
            "source": episode.source,
            "classes": list(episode.class_names),
            "support": episode.support.tolist(),
            "query": episode.query.tolist(),
            "digest": episode.digest(),
            "tasks_learned_before": self.progress.tasks,
        }
        write_text(self.folder / NOT_FINITE, json.dumps(facts, indent=2) + "\n")
        self.watch.say(
            f"task {bad.index} (source {episode.source}): {bad.reason}; stopped before the update. "
            f"The episode is in {self.folder / NOT_FINITE}"
        )
