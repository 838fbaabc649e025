"""Classifiers that are saved, and loaded in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from package.digits import digit_images
from safetensors import safe_open

from cl_cnaps import FewShotClassifier
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata, read_tensors, write_tensors
from cl_cnaps.models.weights import save_weights

SHOTS = 4


@pytest.fixture(scope="module")
def images() -> tuple[list[object], list[str]]:
    labels = [str(d) for d in (1, 4, 7) for _ in range(SHOTS)]
    return [image for d in (1, 4, 7) for image in digit_images(d, SHOTS)], labels


@pytest.fixture(scope="module")
def new() -> list[object]:
    return [image for d in (1, 4, 7) for image in digit_images(d, SHOTS + 3)[SHOTS:]]


@pytest.mark.parametrize(
    ("model", "covariance"),
    [
        ("simple", "seen"),
        ("simple", "task"),
        ("transductive", "seen"),
        ("protonet", "seen"),
        ("cnaps", "seen"),
    ],
)
def test_it_answers_as_before_to_the_bit(
    model: str, covariance: Any, images: tuple[list[object], list[str]], new: list[object], tmp_path: Path
) -> None:
    pictures, labels = images
    classifier = FewShotClassifier(model, image_size=48, device="cpu", covariance=covariance)
    # Two tasks, so that rows of covariances are shared and merged; and one class declared, one forgotten.
    classifier.partial_fit(pictures[: 2 * SHOTS], labels[: 2 * SHOTS], classes=["1", "4", "7", "9"])
    classifier.partial_fit(pictures[SHOTS:], labels[SHOTS:])
    path = classifier.save(tmp_path / "digits.safetensors")
    loaded = FewShotClassifier.load(path, device="cpu")
    assert np.array_equal(loaded.predict_proba(new), classifier.predict_proba(new))
    assert loaded.classes_.tolist() == ["1", "4", "7", "9"]
    assert loaded.covariance == covariance
    assert repr(loaded) == repr(classifier)
    loaded.forget("4").partial_fit(pictures[:SHOTS], labels[:SHOTS])
    assert loaded.counts_ == {"1": 2 * SHOTS, "7": SHOTS}


def test_another_process_gives_the_same_and_the_file_holds_no_images(
    images: tuple[list[object], list[str]], new: list[object], tmp_path: Path
) -> None:
    classifier = FewShotClassifier(image_size=48, device="cpu").fit(*images)
    classifier.save(tmp_path / "digits.safetensors")
    np.save(tmp_path / "new.npy", np.stack([np.asarray(image) for image in new]))
    code = (
        "import sys, numpy as np; from cl_cnaps import FewShotClassifier\n"
        "c = FewShotClassifier.load('digits.safetensors', device='cpu')\n"
        "np.save('answers.npy', c.predict_proba(np.load('new.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "answers.npy"), classifier.predict_proba(new))
    with safe_open(tmp_path / "digits.safetensors", framework="pt") as file:
        assert all(file.get_tensor(name).shape[-1:] != (48,) for name in file.keys())  # noqa: SIM118
    assert (tmp_path / "digits.safetensors").stat().st_size < 2_000_000


def test_features_are_saved_too(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 2
    classifier = FewShotClassifier(input="features", temperature=np.float32(2)).fit(X, y)
    loaded = FewShotClassifier.load(classifier.save(tmp_path / "f.safetensors"))
    assert loaded.temperature == 2
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert loaded.predict(X).dtype == y.dtype


def test_weights_that_are_not_here_are_named(
    images: tuple[list[object], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CL_CNAPS_WEIGHTS", str(tmp_path / "none"))
    model = load_model("simple", image_size=48, device="cpu").model
    with torch.no_grad():
        model.log_temperature += 1
    own = save_weights(tmp_path / "own.safetensors", model, {})
    classifier = FewShotClassifier(weights=str(own.path), device="cpu").fit(*images)
    path = classifier.save(tmp_path / "digits.safetensors")
    moved = own.path.rename(tmp_path / "moved.safetensors")
    with pytest.raises(MissingDataError, match=rf"digits\.safetensors needs the weights own.*{own.digest}"):
        FewShotClassifier.load(path)
    assert FewShotClassifier.load(path, weights=moved, device="cpu").classes_.tolist() == ["1", "4", "7"]
    other = save_weights(tmp_path / "other.safetensors", model, {"another": "training"})
    with pytest.raises(ClCnapsError, match=r"and .*other\.safetensors are others"):
        FewShotClassifier.load(path, weights=other.path)


def test_what_was_downloaded_is_not_downloaded_again(
    images: tuple[list[object], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "timm:test_efficientnet"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    classifier = FewShotClassifier(backbone=name, backbone_weights="random", image_size=32).fit(*images)
    classifier.set_params(backbone_weights="download")
    path = classifier.save(tmp_path / "digits.safetensors")
    with pytest.raises(MissingDataError, match=f"the weights of {name} are not here"):
        FewShotClassifier.load(path)


def test_what_is_no_classifier_is_refused(images: tuple[list[object], list[str]], tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"there is no classifier .*absent"):
        FewShotClassifier.load(tmp_path / "absent.safetensors")
    with pytest.raises(BadInputError, match="nothing has been learned"):
        FewShotClassifier().save(tmp_path / "x.safetensors")
    classifier = FewShotClassifier(adaptation="none", image_size=48).fit(*images)
    with pytest.raises(BadInputError, match=r"saved as \.safetensors files"):
        classifier.save(tmp_path / "x.pt")
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(ClCnapsError, match=r"text\.safetensors"):
        FewShotClassifier.load(tmp_path / "text.safetensors")
    write_tensors(tmp_path / "other.safetensors", {}, {"format": "other"})
    with pytest.raises(ClCnapsError, match="not a classifier of this program"):
        FewShotClassifier.load(tmp_path / "other.safetensors")
    path = classifier.save(tmp_path / "x.safetensors")
    metadata = read_metadata(path)
    for damage in ("{", "{}", metadata["classifier"].replace('"state"', '"stale"')):
        write_tensors(tmp_path / "bad.safetensors", read_tensors(path), {**metadata, "classifier": damage})
        with pytest.raises(ClCnapsError, match=r"bad\.safetensors: damaged"):
            FewShotClassifier.load(tmp_path / "bad.safetensors")
    write_tensors(
        tmp_path / "bad.safetensors",
        read_tensors(path),
        {**metadata, "classifier": metadata["classifier"].replace('"network": "', '"network": "0')},
    )
    with pytest.raises(ClCnapsError, match="learned with another network"):
        FewShotClassifier.load(tmp_path / "bad.safetensors")
