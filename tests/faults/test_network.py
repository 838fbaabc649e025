"""No download without being asked, anywhere."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import NoReturn

import pytest
import safetensors.torch
import torch
from models.small import small_model

from cl_cnaps.errors import MissingDataError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata, read_tensors, write_tensors
from cl_cnaps.models.weights import load_weights, save_weights

TIMM = "timm:mobilenetv3_small_050"


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Any attempt to connect fails the test; the hub's cache is empty."""
    import huggingface_hub.constants

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail("connected to the network")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_timm_backbone_calls_no_hub() -> None:
    with pytest.raises(MissingDataError, match="are not here: `--backbone-weights download` fetches them"):
        load_backbone(TIMM)
    with pytest.raises(MissingDataError, match="are not here"):
        load_model("simple", backbone=TIMM)


def test_weights_that_were_downloaded_before_are_used(no_network: Path) -> None:
    import timm

    network = timm.create_model("mobilenetv3_small_050", pretrained=False)
    folder = no_network / "models--timm--mobilenetv3_small_050.lamb_in1k"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    safetensors.torch.save_file(network.state_dict(), folder / "snapshots" / "abc" / "model.safetensors")
    backbone = load_backbone(TIMM)
    assert backbone.info.weights_source == "timm"
    assert torch.equal(backbone.network.state_dict()["conv_stem.weight"], network.conv_stem.weight)


def test_a_weight_file_that_names_a_timm_backbone_calls_no_hub(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_weights(file, small_model("simple"), {})
    metadata = read_metadata(file)
    tensors = {name: value for name, value in read_tensors(file).items() if not name.startswith("backbone.")}
    metadata["config"] = json.dumps({**json.loads(metadata["config"]), "backbone": TIMM})
    metadata["has_backbone"] = "false"
    write_tensors(file, tensors, metadata)
    with pytest.raises(MissingDataError, match="are not here"):
        load_weights(file)
