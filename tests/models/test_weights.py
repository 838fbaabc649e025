"""Weight files: what is read is what was written, and nothing damaged or foreign is read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models.small import small_task
from safetensors.torch import load_file, save_file

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, make_model
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata
from cl_cnaps.models.weights import (
    describe,
    find_weights,
    list_weights,
    load_weights,
    save_weights,
    shipped_root,
)
from cl_cnaps.paths import weights_root
from cl_cnaps.training.checkpoint import BEST, export

TRAINING = {"recipe": "made up", "tasks": 3, "commit": "0" * 7}


def trained(model: CnapsModel) -> CnapsModel:
    """Away from its initial weights."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def default_model() -> CnapsModel:
    return trained(make_model(CnapsConfig(refine_max=7), load_backbone()))


@pytest.fixture(scope="module")
def small_timm() -> CnapsModel:
    """A model whose file has to hold the backbone too."""
    name = "timm:mobilenetv3_small_050"
    backbone = load_backbone(name, weights="random", image_size=32, seed=6)
    return trained(make_model(CnapsConfig(model="transductive", backbone=name), backbone))


@pytest.mark.parametrize("which", ["default_model", "small_timm"])
def test_what_is_read_is_what_was_written(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model: CnapsModel = request.getfixturevalue(which)
    file = save_weights(tmp_path / "mine.safetensors", model, TRAINING)
    again, read = load_weights(tmp_path / "mine.safetensors")
    assert read == file
    assert again.config == model.config
    assert again.backbone.info == model.backbone.info
    assert not again.training
    assert (file.name, file.training, file.has_backbone) == ("mine", TRAINING, which == "small_timm")
    for key, tensor in again.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[key]), key
    task = small_task()
    with torch.no_grad():
        one, two = (m(task.support, task.labels, task.query, task.way) for m in (model, again))
    assert torch.equal(one, two)


def test_a_head_names_the_weights_that_it_has_its_features_from(
    default_model: CnapsModel, tmp_path: Path
) -> None:
    base = save_weights(tmp_path / "base.safetensors", default_model, TRAINING, dtype=torch.float16)
    features, _ = load_weights(base.path)
    head = make_model(replace(features.config, metric="fit-qda"), features.backbone)
    head.load_state_dict(features.state_dict(), strict=False)
    with torch.no_grad():
        head.fit_log_weights.copy_(torch.tensor([0.1, -0.2, 0.3]))
    file = save_weights(tmp_path / "head.safetensors", head, {}, features=base)
    assert file.features == ("base", base.digest)
    assert file.path.stat().st_size < 10_000
    again, _ = load_weights(file.path)
    assert again.config.metric == "fit-qda"
    for key, tensor in head.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key

    with torch.no_grad():
        next(head.adaptation.parameters()).add_(1)
    with pytest.raises(ClCnapsError, match="its features are not those of base"):
        save_weights(tmp_path / "other.safetensors", head, {}, features=base)
    assert not (tmp_path / "other.safetensors").exists()
    save_weights(tmp_path / "base.safetensors", head, {})  # another file of the same name
    with pytest.raises(MissingDataError, match=f"the features of the weights base .{base.digest}"):
        load_weights(file.path)
    (tmp_path / "base.safetensors").unlink()
    with pytest.raises(MissingDataError, match="neither beside it nor in"):
        load_weights(file.path)


def test_a_head_keeps_its_features_whatever_became_of_the_weights_it_began_from(
    default_model: CnapsModel, tmp_path: Path
) -> None:
    base = save_weights(weights_root() / "base.safetensors", default_model, TRAINING)  # in full precision
    made = {"recipe": {"training": {"learn": "head"}}, "start": {"weights": "base", "digest": base.digest}}
    save_weights(tmp_path / BEST, default_model, made)
    file = export(tmp_path, {})
    assert file.features == ("base", base.digest)
    for key, tensor in load_weights(file.path)[0].adaptation.state_dict().items():
        assert torch.equal(tensor, default_model.adaptation.state_dict()[key]), key
    save_weights(base.path, default_model, {})  # other content of the same name, and then none
    assert export(tmp_path, {}).features is None
    base.path.unlink()
    assert export(tmp_path, {}).features is None
    load_weights(file.path)


def test_a_backbone_that_installations_do_not_have_is_written_too(tmp_path: Path) -> None:
    model = make_model(CnapsConfig(), load_backbone(weights="random", seed=3))
    file = save_weights(tmp_path / "own.safetensors", model, {})
    assert file.has_backbone
    again, _ = load_weights(file.path)
    assert again.backbone.digest() == model.backbone.digest()
    assert again.backbone.info.weights_source == "random initialisation (seed 3)"


def test_half_precision_storage(default_model: CnapsModel, tmp_path: Path) -> None:
    full = save_weights(tmp_path / "full.safetensors", default_model, {})
    half = save_weights(tmp_path / "half.safetensors", default_model, {}, dtype=torch.float16)
    assert half.path.stat().st_size < 0.6 * full.path.stat().st_size
    again, _ = load_weights(half.path)
    for key, tensor in again.state_dict().items():
        expected = default_model.state_dict()[key]
        assert tensor.dtype == expected.dtype
        torch.testing.assert_close(tensor, expected, rtol=1e-3, atol=1e-6)
    assert half.digest != full.digest


def test_numbers_that_a_file_cannot_hold_are_refused(small_timm: CnapsModel, tmp_path: Path) -> None:
    with torch.no_grad():
        small_timm.log_temperature.fill_(1e6)
    with pytest.raises(ClCnapsError, match=r"log_temperature contains NaN or Inf in torch\.float16"):
        save_weights(tmp_path / "large.safetensors", small_timm, {}, dtype=torch.float16)
    with torch.no_grad():
        small_timm.log_temperature.fill_(3.0)
    assert not list(tmp_path.iterdir())


def test_every_flipped_byte_is_noticed(small_timm: CnapsModel, tmp_path: Path) -> None:
    """In the numbers, in the header's names and shapes, and in what the file says of itself."""
    config = replace(small_timm.config, adaptation="none")
    path = save_weights(tmp_path / "a.safetensors", make_model(config, small_timm.backbone), TRAINING).path
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    says = content.index(b"__metadata__")
    places = {
        0,
        3,
        9,
        header - 2,
        *range(says, says + 1500, 31),
        *range(header, len(content), len(content) // 8),
    }
    for place in sorted(places):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ClCnapsError, match=r"a\.safetensors"):
            load_weights(path)
    for length in (0, 7, header, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ClCnapsError, match=r"a\.safetensors"):
            load_weights(path)
    path.write_bytes(content)
    load_weights(path)


def test_a_file_of_another_program(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors", {"format": "pt"})
    with pytest.raises(ClCnapsError, match=r"other\.safetensors is not a weight file of this program"):
        load_weights(str(tmp_path / "other.safetensors"))


def rewritten(path: Path, **changes: str) -> Path:
    """The same file with other metadata and no digest check in the way of describing it."""
    save_file(load_file(path), path, {**read_metadata(path), **changes})
    return path


def test_settings_that_this_version_does_not_know(default_model: CnapsModel, tmp_path: Path) -> None:
    path = save_weights(tmp_path / "new.safetensors", default_model, {}).path
    config = json.loads(read_metadata(path)["config"])
    with pytest.raises(ClCnapsError, match=r"new\.safetensors has unknown settings: colour, encoder\.depth"):
        describe(rewritten(path, config=json.dumps({**config, "colour": 1, "encoder": {"depth": 2}})))
    with pytest.raises(
        ClCnapsError, match=r"new\.safetensors has impossible settings: normaliser must be one of"
    ):
        describe(rewritten(path, config=json.dumps({**config, "normaliser": "mine"})))
    for broken in ("{", "3", '"text"'):
        with pytest.raises(ClCnapsError, match="damaged"):
            describe(rewritten(path, config=broken))


def test_the_wrong_model_or_backbone(default_model: CnapsModel, tmp_path: Path) -> None:
    path = save_weights(tmp_path / "mine.safetensors", default_model, {}).path
    with pytest.raises(ClCnapsError, match="are for the model simple, not for transductive"):
        load_model("transductive", weights=str(path))
    with pytest.raises(ClCnapsError, match="are for efficientnet-lite0, not for resnet18"):
        load_model("simple", weights=str(path), backbone="resnet18")
    with pytest.raises(BadInputError, match="leave backbone_weights out"):
        load_model("simple", weights=str(path), backbone_weights="random")
    rewritten(path, backbone_digest="0" * 16)
    metadata = read_metadata(path)
    with pytest.MonkeyPatch.context() as patch:  # as if the file had been made for another package's numbers
        patch.setattr("cl_cnaps.models.tensor_files.content_digest", lambda *_: metadata["digest"])
        with pytest.raises(ClCnapsError, match="made for other weights of efficientnet-lite0"):
            load_weights(path)


def test_protonet_takes_the_features_of_simple(default_model: CnapsModel, tmp_path: Path) -> None:
    path = save_weights(tmp_path / "mine.safetensors", default_model, {}).path
    loaded = load_model("protonet", weights=path).model
    assert (loaded.name, loaded.config.metric) == ("protonet", "euclidean")
    assert torch.equal(loaded.log_temperature, default_model.log_temperature)


def test_frozen_features_of_a_weight_files_backbone(small_timm: CnapsModel, tmp_path: Path) -> None:
    path = save_weights(tmp_path / "mine.safetensors", small_timm, {}).path
    frozen = load_model("transductive", weights=path, adaptation="none").model
    assert frozen.config.backbone == small_timm.config.backbone
    assert frozen.backbone.digest() == small_timm.backbone.digest()
    assert not any(key.startswith(("adaptation", "task_encoder")) for key in frozen.state_dict())


def test_settings_may_be_changed_on_loading(default_model: CnapsModel, tmp_path: Path) -> None:
    path = save_weights(tmp_path / "mine.safetensors", default_model, {}).path
    assert load_model(weights=path).model.config.refine_max == 7
    changed = load_model(weights=path, refine_max=3, image_size=64).model
    assert (changed.config.refine_max, changed.config.image_size) == (3, 64)
    assert changed.backbone.info.image_size == 64
    with pytest.raises(BadInputError, match="there is no setting 'refine'"):
        load_model(weights=path, refine=3)


def test_a_failed_write_leaves_the_old_file(
    default_model: CnapsModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.safetensors"
    save_weights(path, default_model, {"take": 1})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)
        save_weights(path, default_model, {"take": 2})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["mine.safetensors"]
    save_weights(path, default_model, {"take": 3})
    assert describe(path).training == {"take": 3}


def test_weights_by_name(default_model: CnapsModel) -> None:
    with pytest.raises(MissingDataError, match="no weights called 'mine'"):
        find_weights("mine")
    save_weights(weights_root() / "mine.safetensors", default_model, {})
    assert find_weights("mine") == weights_root() / "mine.safetensors"
    shipped = [path.stem for path in sorted(shipped_root().glob("*.safetensors"))]
    assert [file.name for file in list_weights()] == [*shipped, "mine"]
    (weights_root() / "broken.safetensors").write_bytes(b"?")
    with pytest.raises(MissingDataError, match=r"no weights called 'yours'; there are: .*mine"):
        find_weights("yours")
    with pytest.raises(MissingDataError, match=r"there is no weight file elsewhere/mine\.safetensors"):
        find_weights("elsewhere/mine.safetensors")


def test_a_name_that_does_not_say_safetensors(default_model: CnapsModel, tmp_path: Path) -> None:
    with pytest.raises(ClCnapsError, match=r"end in \.safetensors"):
        save_weights(tmp_path / "mine.pt", default_model, {})


class TestLoadModel:
    def test_unknown_words(self) -> None:
        with pytest.raises(BadInputError, match="unknown model 'simpler'"):
            load_model("simpler")  # type: ignore[arg-type]
        with pytest.raises(BadInputError, match="device 'abacus': cannot be used"):
            load_model(device="abacus")

    def test_what_it_says_of_untrained_weights(self) -> None:
        assert "identity" in load_model(weights="none").weights_source
        assert "frozen features" in load_model(adaptation="none").weights_source
        assert "untrained" in load_model(backbone="resnet18", weights="none").weights_source
        assert "untrained" in load_model("cnaps", weights="none").weights_source
        assert load_model(weights="none").weights_digest is None

    def test_nothing_untrained_unless_it_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("cl_cnaps.models.loading.shipped_root", lambda: tmp_path)
        loaded = load_model(backbone="resnet18")
        assert loaded.model.config.adaptation == "none"
        assert "frozen features" in loaded.weights_source
        with pytest.raises(MissingDataError, match="no weights of CNAPS on efficientnet-lite0 are shipped"):
            load_model("cnaps")

    def test_shipped_weights_are_the_default(
        self, default_model: CnapsModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("cl_cnaps.models.loading.shipped_root", lambda: tmp_path)
        file = save_weights(tmp_path / "simple-efficientnet-lite0.safetensors", default_model, {})
        assert load_model().weights_digest == load_model("protonet").weights_digest == file.digest
        assert load_model("transductive").weights_digest is None
        assert load_model(weights="none").weights_digest is None
        assert load_model(adaptation="none").weights_digest is None
        assert load_model(backbone_weights="random").weights_digest is None

    def test_the_seed_decides_all_random_weights(self) -> None:
        digests = {load_model(backbone="resnet18", seed=seed).model.backbone.digest() for seed in (0, 0, 1)}
        assert len(digests) == 2
