"""Weight files and checkpoints that are damaged or crafted: every bit counts, and nothing but numbers is taken."""

from __future__ import annotations

import json
import logging
import random
import zipfile
from pathlib import Path

import pytest
import torch
from faults.damage import hunt
from models.small import TwoLayers, small_model
from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training.small import small_recipe, small_training

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models import backbones
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata, read_tensors, write_tensors
from cl_cnaps.models.weights import describe, list_weights, load_weights, save_weights
from cl_cnaps.paths import weights_root
from cl_cnaps.training.checkpoint import CHECKPOINT, TrainingLog


@pytest.fixture(autouse=True)
def small_backbone_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "_OWN", {})
    backbones.backbone("small", image_size=32)(TwoLayers)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("training")
    small_training(small_recipe(training={"tasks": 4}), folder).run()
    return (folder / CHECKPOINT).read_bytes()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("weights") / "x.safetensors"
    save_weights(file, small_model("simple"), {"tasks": 4})
    return file.read_bytes()


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_found(tmp_path: Path, trained: bytes) -> None:
    luck, places = random.Random(0), len(trained)
    header = 8 + int.from_bytes(trained[:8], "little")
    recipe = small_recipe(training={"tasks": 4})
    for number in range(60):
        place = luck.randrange(header) if number % 2 else luck.randrange(header, places)
        bit = luck.randrange(8)
        content = trained[:place] + bytes([trained[place] ^ 1 << bit]) + trained[place + 1 :]
        (tmp_path / CHECKPOINT).write_bytes(content)
        with pytest.raises(ClCnapsError):
            small_training(recipe, tmp_path, resume=True)
    (tmp_path / CHECKPOINT).write_bytes(trained)
    assert small_training(recipe, tmp_path, resume=True).progress.tasks == 4


def test_a_checkpoint_without_its_optimisers_state_is_refused(tmp_path: Path, trained: bytes) -> None:
    file = tmp_path / CHECKPOINT
    file.write_bytes(trained)
    tensors, metadata = read_tensors(file), read_metadata(file)
    save_file({k: v for k, v in tensors.items() if not k.startswith("optimiser.")}, file, metadata)
    with pytest.raises(BadInputError, match="does not match the digest"):
        small_training(small_recipe(training={"tasks": 4}), tmp_path, resume=True)


def test_damaged_checkpoints_are_refused(tmp_path: Path, trained: bytes) -> None:
    def check(content: bytes) -> None:
        if content != trained:
            (tmp_path / CHECKPOINT).write_bytes(content)
            with pytest.raises(ClCnapsError):
                small_training(small_recipe(training={"tasks": 4}), tmp_path, resume=True)

    hunt("checkpoint", trained, check, budget=60)


def test_a_damaged_log_holds_up_no_training(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"tasks": 1}\n{"tasks": "x"}\n[1]\n\xff\n3\n' + b"[" * 100_000)
    with TrainingLog(tmp_path, 2):
        assert (tmp_path / "log.jsonl").read_text() == '{"tasks": 1}\n'


def test_a_training_that_goes_on_keeps_the_last_point_of_its_curves(tmp_path: Path) -> None:
    for tasks in (0, 4):
        with TrainingLog(tmp_path, tasks) as log:
            log.add("validation", tasks, {"own": 0.5})
    curves = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [point.step for tag in curves.Tags()["scalars"] for point in curves.Scalars(tag)] == [0, 4]
    with TrainingLog(tmp_path, 4):
        pass
    curves = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [point.step for tag in curves.Tags()["scalars"] for point in curves.Scalars(tag)] == [0, 4]


def test_damaged_weight_files_are_refused(tmp_path: Path, weights: bytes) -> None:
    file = tmp_path / "x.safetensors"

    def check(content: bytes) -> None:
        if content != weights:
            file.write_bytes(content)
            with pytest.raises(ClCnapsError) as caught:
                load_weights(file)
            assert "x.safetensors" in str(caught.value) and "\n" not in str(caught.value)

    hunt("weights", weights, check, budget=200)


def test_damaged_state_dicts_are_plain_tensors_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    torch.save({"a": torch.arange(6.0), "b": torch.ones(2, 2, dtype=torch.int64)}, file)

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            tensors = read_tensors(file)
        except ClCnapsError as error:
            assert "x.pt" in str(error) and "\n" not in str(error)
        else:
            assert all(tensor.layout == torch.strided for tensor in tensors.values())

    hunt("state-dict", file.read_bytes(), check, budget=200)


def test_a_flipped_bit_in_a_pretrained_backbone_is_found(tmp_path: Path) -> None:
    file = tmp_path / "backbone.safetensors"
    write_tensors(file, {"weight": torch.ones(4)}, {"format": "cl-cnaps backbone 1", "training": "{}"})
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        BadInputError, match=r"backbone\.safetensors is damaged: .* does not match the digest"
    ):
        read_tensors(file)


TENSORS = {
    "sparse": torch.eye(3).to_sparse(),
    "compressed": torch.eye(3).to_sparse_csr(),
    "without numbers": torch.empty(3, device="meta"),
    "of more numbers than there are": torch.ones(1).expand(10**6),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensors_that_are_no_plain_numbers_are_refused(tmp_path: Path, tensor: torch.Tensor) -> None:
    torch.save({"weight": tensor}, tmp_path / "x.pt")
    with pytest.raises(ClCnapsError, match=r"x\.pt"):
        read_tensors(tmp_path / "x.pt")


def test_a_checkpoint_that_unpacks_to_more_than_it_has_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(10**5)}, tmp_path / "stored.pt")
    with zipfile.ZipFile(tmp_path / "stored.pt") as stored, zipfile.ZipFile(tmp_path / "x.pt", "w") as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name), zipfile.ZIP_DEFLATED)
    with pytest.raises(BadInputError, match=r"x\.pt unpacks to 4\d\d,\d+ bytes: refused as a zip bomb"):
        read_tensors(tmp_path / "x.pt")


METADATA = {
    "config": [
        "[]",
        "null",
        '"x"',
        "[" * 5000,
        "{",
        '{"encoder": []}',
        '{"encoder": 3}',
        '{"beta": "x"}',
        "9" * 5000,
    ],
    "has_backbone": ["1", "null", "{}", '"true"'],
    "training": ["[]", "3", "null", '{"data": []}', '{"data": {"mnist": 3}}', "[" * 5000],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in METADATA for value in METADATA[key]])
def test_metadata_that_is_not_what_it_should_be(tmp_path: Path, weights: bytes, key: str, value: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(weights)
    tensors, metadata = read_tensors(file), {**read_metadata(file), key: value}
    write_tensors(file, tensors, metadata)
    with pytest.raises(ClCnapsError, match=r"x\.safetensors") as caught:
        load_model("simple", weights=file, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"image_size": "big"}, {"image_size": -1}, {"beta": None}, {"refine_min": "x"}]
)
def test_settings_of_the_wrong_kind(tmp_path: Path, weights: bytes, change: dict[str, object]) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(weights)
    tensors, metadata = read_tensors(file), read_metadata(file)
    metadata["config"] = json.dumps({**json.loads(metadata["config"]), **change})
    write_tensors(file, tensors, metadata)
    with pytest.raises(ClCnapsError):
        load_weights(file)


def test_one_bad_file_does_not_empty_the_list(weights: bytes, caplog: pytest.LogCaptureFixture) -> None:
    root = weights_root()
    root.mkdir(parents=True)
    (root / "good.safetensors").write_bytes(weights)
    (root / "bad.safetensors").write_bytes(b"nothing")
    save_file({"a": torch.ones(1)}, root / "other.safetensors")
    assert "good" in [file.name for file in list_weights()]
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 2
    assert "bad.safetensors" in lines[0]


@pytest.mark.parametrize("name", ["weights", "backbone", "backbone_weights"])
@pytest.mark.parametrize("text", ["", " "])
def test_empty_texts_are_refused(name: str, text: str) -> None:
    with pytest.raises(BadInputError, match=f"{name} is an empty text"):
        load_model("simple", **{name: text})  # type: ignore[arg-type]


def test_weights_are_described_and_loaded_as_they_are(tmp_path: Path, weights: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(weights)
    assert describe(tmp_path / "x.safetensors").training == {"tasks": 4}
    model, _ = load_weights(tmp_path / "x.safetensors")
    expected = small_model("simple").state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
