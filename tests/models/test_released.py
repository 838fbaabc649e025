"""Import of released checkpoints: every name accounted for, everything else refused, no code run."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from models.released_names import made_up_checkpoint

from cl_cnaps.errors import ClCnapsError, MissingDataError
from cl_cnaps.models.cnaps import ModelName
from cl_cnaps.models.released import import_checkpoint
from cl_cnaps.models.tensor_files import read_tensors


@pytest.mark.parametrize("name", ["simple", "transductive", "cnaps"])
def test_every_released_number_arrives(name: ModelName, tmp_path: Path) -> None:
    state = made_up_checkpoint(name)
    torch.save({"iteration": 7, "model_state_dict": state}, tmp_path / "best.pt")
    model = import_checkpoint(tmp_path / "best.pt")
    assert model.name == name
    assert model.config.normaliser == "released"
    assert not model.config.encoder.batch_statistics
    ours = list(model.state_dict().values())
    assert len(ours) == len(state)
    for tensor, expected in zip(ours, state.values(), strict=True):
        assert torch.equal(tensor, expected)
    assert model.backbone.info.weights_source == "best.pt"
    assert "random" not in model.backbone.info.pretraining
    assert import_checkpoint(tmp_path / "best.pt", batch_statistics=True).config.encoder.batch_statistics


def refused(path: Path, state: Any, message: str, model: ModelName | None = None) -> None:
    torch.save(state, path / "odd.pt")
    with pytest.raises(ClCnapsError, match=message):
        import_checkpoint(path / "odd.pt", model)


def test_what_does_not_fit_is_refused_by_the_name_it_has_in_the_file(tmp_path: Path) -> None:
    state = made_up_checkpoint("simple")
    stem, regulariser = (
        "feature_extractor.conv1.weight",
        "feature_adaptation_network.layers.0.beta1_regularizers.1",
    )
    odd = {key: value for key, value in state.items() if key != "feature_extractor.bn1.bias"}
    odd |= {"optimizer.lr": torch.ones(1), stem: torch.ones(64, 3, 7, 7)}
    odd |= {regulariser: torch.full((64,), float("nan"))}
    refused(
        tmp_path,
        odd,
        r"odd\.pt does not fit this model: missing backbone\.network\.bn1\.bias; unknown optimizer\.lr; "
        rf"{stem} has shape \(64, 3, 7, 7\), expected \(64, 3, 5, 5\); {regulariser} contains NaN or Inf$",
    )
    refused(tmp_path, state, "is a checkpoint of simple, not of cnaps", "cnaps")
    refused(tmp_path, {}, "holds no state dict")
    refused(tmp_path, [1, 2], "holds no state dict")
    refused(tmp_path, {"weights": "many"}, "holds no state dict")


def test_many_problems_are_counted(tmp_path: Path) -> None:
    state = {key: value for key, value in made_up_checkpoint("simple").items() if "layer4" not in key}
    refused(tmp_path, state, r"missing backbone\.network\.layer4.*and \d+ more")


class Trap:
    """Unpickled, it would make a file."""

    def __init__(self, bait: Path) -> None:
        self.bait = bait

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.bait),)


@pytest.mark.parametrize("plain_pickle", [False, True])
def test_code_in_a_checkpoint_is_not_run(plain_pickle: bool, tmp_path: Path) -> None:
    bait = tmp_path / "sprung"
    content = {**made_up_checkpoint("simple"), "set_encoder.hook": Trap(bait)}
    if plain_pickle:
        (tmp_path / "trap.pt").write_bytes(pickle.dumps(Trap(bait), protocol=2))
    else:
        torch.save(content, tmp_path / "trap.pt")
    with pytest.raises(ClCnapsError, match="not a checkpoint of plain tensors"):
        import_checkpoint(tmp_path / "trap.pt")
    assert not bait.exists()
    pickle.loads(pickle.dumps(Trap(bait)))  # the trap works: what was refused would have run
    assert bait.exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"\x80\x02", b"PK\x03\x04", bytes(range(256)) * 8]
)
def test_files_that_are_no_checkpoints(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd.pt").write_bytes(content)
    with pytest.raises(ClCnapsError, match=r"odd\.pt"):
        import_checkpoint(tmp_path / "odd.pt")


def test_a_truncated_checkpoint(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1000)}, tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    for length in range(1, len(content), 397):
        (tmp_path / "cut.pt").write_bytes(content[:length])
        with pytest.raises(ClCnapsError, match=r"cut\.pt"):
            read_tensors(tmp_path / "cut.pt")


def test_damaged_checkpoints_raise_nothing_else(tmp_path: Path) -> None:
    torch.save({"set_encoder.a": torch.ones(50)}, tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    for place in range(0, len(content), 23):
        (tmp_path / "flipped.pt").write_bytes(
            content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]
        )
        with contextlib.suppress(ClCnapsError):
            read_tensors(tmp_path / "flipped.pt")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no weight file"):
        import_checkpoint(tmp_path / "absent.pt")
