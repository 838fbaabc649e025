"""What a training writes: its state in one file that is replaced in one move, its log, and its weights.

Tasks and their augmentation are functions of the seed and their number, so the number of tasks done stands for
the state of every random generator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from cl_cnaps.data.atomic import write_text
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.models.tensor_files import content_digest, load_exactly, read_metadata, write_tensors
from cl_cnaps.models.weights import WeightFile, load_weights, save_weights, weights_with_features

CHECKPOINT = "checkpoint.safetensors"
_FORMAT = "cl-cnaps training 2"
_MODEL, _OPTIMISER, _AVERAGE = "model.", "optimiser.", "average."


@dataclass
class Progress:
    """How far a training is."""

    tasks: int = 0
    episodes: str = ""
    """Digest over the episodes trained on, in order."""
    validated: int | None = None
    """Number of tasks at the last validation."""
    frozen: dict[str, float] = field(default_factory=dict)
    """Accuracy of frozen features on the validation tasks, by source."""
    best: dict[str, Any] | None = None
    """The validation with the highest mean accuracy so far."""
    worse_in_a_row: int = 0
    """Validations since adapted features were last as good as frozen ones."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds."""

    recipe: Mapping[str, Any]
    progress: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def save_checkpoint(
    folder: Path,
    recipe: Mapping[str, Any],
    progress: Any,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    *,
    leave_out: tuple[str, ...] = (),
    average: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the state; tensors of the model whose names begin with one in `leave_out` never change and are not."""
    tensors = {
        f"{_MODEL}{name}": tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith(leave_out or "\0")
    }
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{_OPTIMISER}{name}:{key}"] = torch.as_tensor(value)
    tensors |= {f"{_AVERAGE}{name}": tensor for name, tensor in (average or {}).items()}
    metadata = {
        "format": _FORMAT,
        "recipe": json.dumps(recipe, sort_keys=True),
        "progress": json.dumps(asdict(progress), allow_nan=False),
    }
    write_tensors(folder / CHECKPOINT, tensors, metadata)


def averaged(saved: Saved) -> dict[str, Tensor]:
    """The averaged weights in a checkpoint."""
    return {
        name.removeprefix(_AVERAGE): tensor
        for name, tensor in saved.tensors.items()
        if name.startswith(_AVERAGE)
    }


def read_checkpoint(folder: Path) -> bytes:
    """The bytes of the checkpoint in a run's folder."""
    path = folder / CHECKPOINT
    if not path.is_file():
        raise MissingDataError(f"there is no checkpoint to resume from in {folder} ({CHECKPOINT})")
    if read_metadata(path).get("format") != _FORMAT:
        raise ClCnapsError(f"{path} is not a checkpoint of a training of this program")
    return path.read_bytes()


def parse_checkpoint(content: bytes) -> Saved:
    """A checkpoint from its bytes; one that is not to the last bit what was written is refused."""
    with foreign(CHECKPOINT):
        # A safetensors file begins with the length of a JSON header, in which the metadata are.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata, tensors = header["__metadata__"], load(content)
        if metadata["digest"] != content_digest(tensors, metadata):
            raise BadInputError(
                f"{CHECKPOINT} is damaged: its content does not match the digest in its metadata. Start anew with "
                "another --out, or from the best weights so far (key `start` of a recipe)"
            )
        return Saved(json.loads(metadata["recipe"]), json.loads(metadata["progress"]), tensors)


def load_state(
    saved: Saved, model: nn.Module, optimiser: torch.optim.Optimizer, *, leave_out: tuple[str, ...] = ()
) -> None:
    """Put a checkpoint's numbers into the model and the optimiser."""
    own = model.state_dict()
    tensors = {name: tensor for name, tensor in own.items() if name.startswith(leave_out or "\0")}
    tensors |= {
        name.removeprefix(_MODEL): tensor for name, tensor in saved.tensors.items() if name.startswith(_MODEL)
    }
    load_exactly(model, tensors, CHECKPOINT)
    for name, parameter in model.named_parameters():
        prefix = f"{_OPTIMISER}{name}:"
        state = {
            key.removeprefix(prefix): tensor
            for key, tensor in saved.tensors.items()
            if key.startswith(prefix)
        }
        if state:
            # Counters stay where the optimiser keeps them; what has the parameter's shape goes with it.
            optimiser.state[parameter] = {
                key: tensor.to(parameter.device)
                if tensor.shape == parameter.shape and tensor.ndim
                else tensor
                for key, tensor in state.items()
            }


def check_no_checkpoint(folder: Path) -> None:
    """Refuse to begin a training in a folder that holds one."""
    if (folder / CHECKPOINT).exists():
        raise BadInputError(
            f"{folder} holds a training already: go on with it by --resume, or choose another --out"
        )


def check_same_recipe(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on under another recipe, except with more tasks where that changes nothing before."""
    if saved == given:
        return
    longer = json.loads(json.dumps(given))
    if saved.get("training", {}).get("schedule") == "constant":
        longer["training"]["tasks"] = saved["training"]["tasks"]
    if saved != longer:
        differs = [key for key in sorted({*saved, *given}) if saved.get(key) != longer.get(key)]
        raise BadInputError(
            f"cannot resume: the checkpoint was made by another recipe (it differs in {', '.join(differs)}). "
            "Use that recipe, or start anew with another --out"
        )


LOG = "log.jsonl"


class TrainingLog:
    """log.jsonl and tensorboard/ in the folder of a run.

    A training that is resumed at some task forgets what was written of later ones, which it does again.
    """

    def __init__(self, folder: Path, tasks: int, counted_as: str = "tasks") -> None:
        self._path = folder / LOG
        self._counted_as = counted_as
        content = self._path.read_bytes() if self._path.is_file() else b""
        lines = content.decode(errors="replace").splitlines()
        write_text(self._path, "".join(f"{line}\n" for line in lines if self._is_before(line, tasks)))
        self._file = self._path.open("a", encoding="utf-8")
        self._curves = SummaryWriter(folder / "tensorboard", purge_step=tasks + 1)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._curves.close()

    def add(self, kind: str, tasks: int, values: Mapping[str, Any]) -> None:
        """Note numbers (or tables of numbers) that belong to a number of tasks."""
        line = {self._counted_as: tasks, "kind": kind, **values}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, Mapping):
                for part, number in value.items():
                    self._curves.add_scalar(f"{kind}/{name}/{part}", number, tasks)
            else:
                self._curves.add_scalar(f"{kind}/{name}", value, tasks)

    def _is_before(self, line: str, tasks: int) -> bool:
        try:
            return bool(json.loads(line)[self._counted_as] <= tasks)
        except (ValueError, KeyError, TypeError, RecursionError):
            return False  # cut short by a kill, or damaged


BEST = "best.safetensors"
"""The weights of the best validation so far, in full precision."""

WEIGHTS = "weights.safetensors"


def export(folder: Path, more: Mapping[str, Any]) -> WeightFile:
    """The best weights in half precision, with all that is known of their making and `more`."""
    model, file = load_weights(folder / BEST)
    return save_weights(
        folder / WEIGHTS,
        model,
        {**file.training, **more},
        dtype=torch.float16,
        features=_features_of(file.training),
    )


def _features_of(training: Mapping[str, Any]) -> WeightFile | None:
    """The weights whose features a training of the head alone has kept, if they still are found by their name."""
    start = training.get("start")
    if training["recipe"]["training"]["learn"] != "head" or not start:
        return None
    return weights_with_features(start["weights"], start["digest"])
