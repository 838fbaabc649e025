"""The memory limit of embedding, against the bytes that tensors really take."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.small import small_model, small_task
from torch.utils._python_dispatch import TorchDispatchMode

from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model


class PeakBytes(TorchDispatchMode):
    """Counts the bytes of all storages made inside the block, and the most that were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self._made(tensor.untyped_storage())
        return result

    def _made(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._seen:
            return
        self._seen.add(storage._cdata)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())

    def _gone(self, key: int, nbytes: int) -> None:
        self._seen.discard(key)
        self.live -= nbytes


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("efficientnet-lite0", "auto"),
        ("resnet18", "random"),
        ("timm:resnet26", "random"),
        ("timm:densenet121", "random"),
    ],
)
def test_embedding_stays_under_the_limit(name: str, weights: str) -> None:
    model = make_model(
        CnapsConfig(backbone=name, adaptation="none"), load_backbone(name, weights=weights, image_size=64)
    )
    images = torch.zeros(12, 3, 64, 64, dtype=torch.uint8)
    network = model.fold(model.adapt(None))
    limit = 5 * network.bytes_per_image
    with PeakBytes() as use:
        features = model.embed_folded(images, network, limit)
    assert features.shape == (12, model.backbone.info.width)
    assert use.peak <= limit + features.nbytes
    assert use.peak > limit / 10, "the count misses most of the memory"


def test_large_images_count_too() -> None:
    model = small_model("simple", adaptation="none")
    images = torch.zeros(8, 3, 500, 500, dtype=torch.uint8)
    network = model.fold(model.adapt(None))
    limit = 10 * 4 * images[0].numel()
    with PeakBytes() as use:
        model.embed_folded(images, network, limit)
    assert limit / 3 < use.peak <= limit


def test_encoding_stays_under_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = small_model("simple"), small_task(shot=10)
    limit = 5 * 4 * 64 * 32 * 32 * 4
    monkeypatch.setattr("cl_cnaps.models.cnaps.MEMORY_LIMIT", limit)
    with torch.no_grad(), PeakBytes() as use:
        model.encode(task.support, task.labels)
    assert limit / 10 < use.peak <= limit


def test_counting_activations_leaves_nothing_behind_when_the_network_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_images: torch.Tensor) -> torch.Tensor:
        raise MemoryError

    model = small_model("simple")
    network = model.backbone.network
    monkeypatch.setattr(network, "forward", fails)
    with pytest.raises(MemoryError):
        model.training_bytes_per_image()
    assert not any(module._forward_hooks for module in network.modules())
