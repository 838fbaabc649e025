"""Imported before the tests here, so that torchvision can be imported by Avalanche wherever it was built."""

from __future__ import annotations

import cl_cnaps  # noqa: F401
