"""The small networks of the baselines."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from cl_cnaps.continual.baselines.network_learner import Cnn


def test_channels_last_changes_neither_logits_nor_gradients() -> None:
    torch.manual_seed(0)
    fast = Cnn(4, 8)
    images = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(6) % 4
    plain = Cnn(4, 8).to(memory_format=torch.contiguous_format)
    plain.load_state_dict(fast.state_dict())
    logits = fast(images)
    theirs = plain.layers(images.float() / 127.5 - 1)
    torch.testing.assert_close(logits, theirs)
    for network, scores in ((fast, logits), (plain, theirs)):
        F.cross_entropy(scores, labels).backward()
        assert all(weights.grad is not None for weights in network.parameters())
    for ours, one in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, one.grad, rtol=1e-4, atol=1e-6)
    assert fast.layers[0].weight.is_contiguous(memory_format=torch.channels_last)
