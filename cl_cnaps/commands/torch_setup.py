"""How PyTorch is set for every command that computes."""

from __future__ import annotations


def set_up_torch() -> None:
    """Flush denormal numbers to zero: overconfident tasks are full of them, and they are many times slower."""
    import torch

    torch.set_flush_denormal(True)
