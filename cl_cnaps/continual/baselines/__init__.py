"""Baselines of continual learning as learners of a stream, made from one list.

Importing this package is cheap: PyTorch and Avalanche are loaded when a baseline is made.
"""

from __future__ import annotations

from cl_cnaps.continual.baselines.registry import BASELINES, BaselineInfo, Inputs, baseline, make_baseline

__all__ = ["BASELINES", "BaselineInfo", "Inputs", "baseline", "make_baseline"]
