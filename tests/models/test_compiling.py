"""The compiled form of the folded backbone: the plain one's features, one compilation for all tasks and batches."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from models.small import small_model, small_task, some_film

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.compiling import PAYS_FROM, decide
from cl_cnaps.models.loading import load_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CnapsModel]:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CL_CNAPS_CACHE", str(cache))
        model = small_model("simple")
        said = model.compile_embedding()
    assert model.compiled, said
    assert said.startswith("compiled in ")
    assert said.endswith(str(cache / "compiled"))
    assert any((cache / "compiled").rglob("*.so"))
    yield model
    torch._dynamo.reset()


@pytest.mark.parametrize("images", [0, 1, 2, 7, 64, 65])
def test_compiled_features_are_the_plain_ones(compiled: CnapsModel, images: int) -> None:
    pixels = small_task(n_query=images).query
    film = some_film(compiled.backbone)
    plain = copy.deepcopy(compiled)
    assert not plain.compiled
    expected = plain.embed_folded(pixels, plain.fold(film))
    torch.testing.assert_close(compiled.embed_folded(pixels, compiled.fold(film)), expected)


def test_another_task_and_another_number_of_images_do_not_compile_again(compiled: CnapsModel) -> None:
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    features = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed, images in ((1, 5), (2, 5), (3, 1), (4, 33)):
            network = compiled.fold(some_film(compiled.backbone, seed))
            features.append(compiled.embed_folded(small_task(n_query=images).query, network))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
    assert not torch.allclose(features[0], features[1])  # each task has its own weights


def test_the_program_does_not_travel_between_processes(compiled: CnapsModel) -> None:
    assert not pickle.loads(pickle.dumps(compiled)).compiled
    assert compiled.compiled


def test_without_a_compiler_it_stays_plain_and_says_so_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = small_model("simple")
    film, pixels = some_film(model.backbone), small_task().query
    before = model.embed_folded(pixels, model.fold(film))
    said = model.compile_embedding()
    assert said == (
        "not compiled: there is no C++ compiler 'no-such-compiler' here; install one or name it in CXX"
    )
    assert not model.compiled
    assert torch.equal(model.embed_folded(pixels, model.fold(film)), before)


def test_a_compiler_that_fails_leaves_the_plain_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, str(broken)))  # read from CXX at import
    torch._dynamo.reset()
    model = small_model("simple")
    said = model.compile_embedding()
    assert said.startswith("not compiled: the compiler failed (")
    assert "\n" not in said
    assert not model.compiled


def test_loading_warns_where_compiling_was_asked_for_and_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler"):
        loaded = load_model(
            "simple", backbone="resnet18", backbone_weights="random", image_size=32, compiled=True
        )
    assert not loaded.model.compiled


@pytest.mark.parametrize("backbone", ["efficientnet-lite0", "timm:anything"])
def test_auto_compiles_from_the_number_of_images_on_where_it_pays(backbone: str) -> None:
    enough = PAYS_FROM["efficientnet-lite0"]
    assert enough is not None
    few, many = decide("auto", backbone, CPU, enough - 1), decide("auto", backbone, CPU, enough)
    assert not few.compile
    assert many.compile
    assert f"{enough:,} images" in few.why
    assert f"{enough - 1:,}" in few.why


def test_auto_does_not_compile_where_it_saves_nothing() -> None:
    never = decide("auto", "resnet18", CPU, 10**9)
    assert not never.compile
    assert "save nothing on resnet18" in never.why


def test_on_and_off_do_as_they_say() -> None:
    assert decide("on", "resnet18", CPU, 1).compile
    assert not decide("off", "resnet18", CPU, 10**9).compile
    assert not decide("auto", "resnet18", torch.device("cuda"), 10**9).compile
    with pytest.raises(BadInputError, match="auto, on or off"):
        decide("yes", "resnet18", CPU, 1)  # type: ignore[arg-type]
