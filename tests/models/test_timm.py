"""Networks of timm: vision transformers and layer-norm CNNs, frozen and with FiLM, through every use of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from models.small import scramble, small_task, some_film
from torch import Tensor
from training.small import Silence, one_process, small_data, small_recipe
from training.test_metatrain import same_state

from cl_cnaps.commands.main import main
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, make_model
from cl_cnaps.models.film_training import training_forward
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.weights import save_weights
from cl_cnaps.training import step
from cl_cnaps.training.metatrain import Ending, MetaTraining
from cl_cnaps.training.step import TaskScore

VIT, CONVNEXT = "timm:test_vit", "timm:test_convnext"


def adapting_model(name: str, size: int = 32, model: Any = "simple") -> CnapsModel:
    """A model on a random network whose adaptation does something."""
    backbone = load_backbone(name, weights="random", image_size=size)
    scramble(backbone.network)
    made = make_model(CnapsConfig(model=model, backbone=name), backbone)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.adaptation.parameters():
            parameter.normal_(0, 0.1, generator=generator)
    return made


def command(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


class TestInput:
    def test_is_of_the_networks_data_config(self) -> None:
        for name, size, mean, width in (
            (VIT, 160, 0.5, 64),
            ("timm:test_efficientnet", 160, 0.485, 256),
            ("timm:convnext_atto", 224, 0.485, 320),
        ):
            info = load_backbone(name, weights="random").info
            assert (info.image_size, info.mean[0], info.width) == (size, mean, width)

    def test_a_transformer_resamples_its_position_embedding(self) -> None:
        torch.manual_seed(0)
        one, other = (load_backbone(VIT, weights="random", image_size=size) for size in (160, 64))
        assert one.digest() == other.digest(), "the embedding is stored as it was made"
        images = torch.randn(2, 3, 64, 64)
        with torch.no_grad():
            assert torch.equal(one(images), other(images))
            plain = other(images)
            other.network.pos_embed.zero_()
            assert not torch.allclose(other(images), plain)
        with pytest.raises(BadInputError, match=r"patches of 16 pixels: .* such as 112, not 100"):
            load_backbone(VIT, weights="random", image_size=100)

    def test_a_size_may_be_built_in(self) -> None:
        backbone = load_backbone("timm:test_vit_relpos", weights="random", image_size=64)
        model = make_model(CnapsConfig(backbone=backbone.info.name), backbone)
        task = small_task(size=64)
        assert model(task.support, task.labels, task.query, task.way).shape == (7, 3)
        with (
            pytest.raises(BadInputError, match="reads images of 64 pixels alone, not of 96"),
            model.at_image_size(96),
        ):
            pass

    def test_a_transformer_of_windows(self) -> None:
        info = load_backbone("timm:swinv2_cr_tiny_224", weights="random", image_size=64).info
        assert (info.image_size, info.size_step, info.width) == (64, 4, 768)

    def test_weights_of_a_file_fit_every_size(self, tmp_path: Path) -> None:
        model = adapting_model(VIT)
        save_weights(tmp_path / "vit.safetensors", model, {})
        again = load_model("simple", weights=tmp_path / "vit.safetensors", image_size=64).model
        assert again.backbone.digest() == model.backbone.digest()
        task = small_task(size=64)
        with torch.no_grad(), model.at_image_size(64):
            expected = model(task.support, task.labels, task.query, task.way)
            torch.testing.assert_close(again(task.support, task.labels, task.query, task.way), expected)


@pytest.mark.parametrize("name", ["timm:test_nfnet", "timm:test_vit4", "timm:test_efficientnet_evos"])
def test_networks_that_film_cannot_modulate_have_frozen_features(name: str) -> None:
    task = small_task()
    model = load_model("simple", backbone=name, backbone_weights="random", image_size=32).model
    with torch.no_grad():
        assert bool(torch.isfinite(model(task.support, task.labels, task.query, task.way)).all())
    with pytest.raises(BadInputError, match=r"no batch-, layer- or group-norm .* adaptation none"):
        load_model("simple", backbone=name, backbone_weights="random", weights="none", image_size=32)


@pytest.mark.parametrize("name", [VIT, "timm:test_vit3", CONVNEXT, "timm:test_maxvit", "timm:test_mambaout"])
def test_the_task_encoder_reads_early_layers(name: str) -> None:
    size = 160 if "maxvit" in name else 64
    model = adapting_model(name, size)
    one, other = small_task(size=size, seed=1), small_task(size=size, seed=2)
    with torch.no_grad():
        encodings = [model.encode(task.support, task.labels) for task in (one, other, one)]
    first, second, again = (encoding for encoding in encodings if isinstance(encoding, Tensor))
    assert torch.equal(first, again)
    assert float((first - second).abs().max()) > 1e-3


@pytest.mark.parametrize("name", [VIT, CONVNEXT, "timm:vit_tiny_patch16_224"])
def test_estimated_memory_of_training(name: str) -> None:
    """The estimate is what autograd keeps, to a factor of two, and not less by more than a tenth."""
    backbone = load_backbone(name, weights="random", image_size=64)
    model = make_model(CnapsConfig(backbone=name), backbone)
    film = some_film(backbone)
    for part in (*film.gammas, *film.betas):
        part.requires_grad_()
    own = {parameter.data_ptr() for parameter in backbone.network.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = training_forward(backbone, film, torch.randn(8, 3, 64, 64))
    assert features.requires_grad
    assert 0.9 < 8 * model.training_bytes_per_image() / sum(kept.values()) < 2


@pytest.mark.parametrize("name", [VIT, CONVNEXT])
class TestThroughEveryUse:
    def test_stream_and_evaluate(self, name: str, tmp_path: Path) -> None:
        weights = tmp_path / "mine.safetensors"
        save_weights(weights, adapting_model(name), {})
        common = ("--weights", weights, "--image-size", 32, "--out", tmp_path, "--json")
        rows = command("stream", "--runs", 1, "--shots", 3, "--queries", 3, *common).splitlines()
        assert json.loads(rows[-1])
        frozen = command("stream", "--runs", 1, "--shots", 3, "--queries", 3, *common, "--adaptation", "none")
        assert frozen.splitlines()[-1] != rows[-1]
        assert json.loads(command("evaluate", "mnist", "--tasks", 2, *common).splitlines()[-1])

    def test_meta_training_and_resume(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recipe = small_recipe(training={"tasks": 8}, validation={"every": 100, "tasks": 1})

        def training(folder: str, *, resume: bool = False) -> MetaTraining:
            path, model = tmp_path / folder, adapting_model(name)
            return MetaTraining(
                recipe, model, small_data(recipe), path, one_process(), Silence(), about={}, resume=resume
            )

        whole = training("whole")
        assert whole.run() is Ending.FINISHED
        before = adapting_model(name).state_dict()
        for key, tensor in whole.model.state_dict().items():
            if key.startswith(("adaptation.heads", "backbone.")):
                assert torch.equal(tensor, before[key]) == key.startswith("backbone."), key

        class Died(BaseException):
            """As if killed: nothing is caught, nothing more is written."""

        killed, plain = training("killed"), step.add_gradient

        def die(*arguments: Any) -> TaskScore:
            if killed.progress.tasks == 4:
                raise Died
            return plain(*arguments)

        monkeypatch.setattr(step, "add_gradient", die)
        with pytest.raises(Died):
            killed.run()
        monkeypatch.setattr(step, "add_gradient", plain)
        assert training("killed", resume=True).run() is Ending.FINISHED
        same_state(tmp_path / "whole", tmp_path / "killed")

    def test_weights_show(self, name: str) -> None:
        facts = json.loads(command("weights", "show", name, "--json"))
        assert facts["image_size"] == 160
        assert facts["features"] == 64
        layers = load_backbone(name, weights="random").film_layers
        channels = sum(layer.channels for layer in layers)
        assert facts["modulated"] == {"layer_norm": {"layers": len(layers), "channels": channels}}
        shown = command("weights", "show", name)
        assert f"channels: {channels}" in shown
        assert f"{layers[0].name}: {layers[0].channels} channels, layer-norm" in shown
