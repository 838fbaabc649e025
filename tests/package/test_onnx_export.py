"""The exported graph under ONNX Runtime."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from package.digits import digit_images

from cl_cnaps import FewShotClassifier
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.gaussian import estimate, support_statistics
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits
from cl_cnaps.image_inputs import pictures, pixels
from cl_cnaps.onnx_export import MahalanobisHead

DIGITS = (1, 4, 7)


def images(first: int, last: int) -> tuple[list[object], list[str]]:
    found = [image for digit in DIGITS for image in digit_images(digit, last)[first:]]
    return found, [str(digit) for digit in DIGITS for _ in range(last - first)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("simple", {}),
        ("simple", {"covariance": "task"}),
        ("protonet", {}),
        ("cnaps", {}),
        (
            "simple",
            {"backbone": "timm:test_vit", "backbone_weights": "random"},
        ),  # resamples its position embedding
        ("simple", {"backbone": "timm:test_convnext", "backbone_weights": "random"}),
    ],
)
def test_it_answers_the_same(model: str, options: dict[str, Any], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    support, labels = images(0, 4)
    classifier = FewShotClassifier(model, image_size=48, device="cpu", **options)
    classifier.partial_fit(support[:8], labels[:8])
    classifier.partial_fit(support[8:], labels[8:])
    path = classifier.export(tmp_path / "digits.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["digits.onnx"]
    session = runtime.InferenceSession(path)
    new = images(4, 9)[0]
    (found,) = session.run(None, {"images": pixels(pictures(new), 48).numpy()})
    assert np.abs(found - classifier.predict_proba(new)).max() < 1e-4
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == ["1", "4", "7"]
    assert metadata["image_size"] == "48"
    (single,) = session.run(None, {"images": pixels(pictures(new[:1]), 48).numpy()})
    assert single.shape == (1, 3)


@pytest.mark.parametrize(("shots", "width"), [(3, 40), (30, 12)])
def test_the_head_is_the_closed_form(shots: int, width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4 * shots, width, generator=generator)
    gaussians = estimate(support_statistics(features, torch.arange(4).repeat_interleave(shots), 4))
    query = torch.randn(9, width, generator=generator)
    torch.testing.assert_close(MahalanobisHead(gaussians)(query), mahalanobis_logits(gaussians, query))


def test_what_cannot_be_exported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.random.default_rng(0).normal(size=(6, 3)), [0, 1] * 3
    pytest.importorskip("onnxscript")
    with pytest.raises(BadInputError, match="no network"):
        FewShotClassifier(input="features").fit(X, y).export(tmp_path / "x.onnx")
    support = images(0, 2)
    with pytest.raises(BadInputError, match="all images together"):
        FewShotClassifier("transductive", image_size=48).fit(*support).export(tmp_path / "x.onnx")
    with pytest.raises(BadInputError, match="metric cosine are not exported"):
        FewShotClassifier(metric="cosine", image_size=48).fit(*support).export(tmp_path / "x.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ClCnapsError, match=r"pip install 'cl-cnaps\[onnx\]'"):
        FewShotClassifier(image_size=48).fit(*support).export(tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())
