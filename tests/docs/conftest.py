"""Imports the package before Avalanche, which torchvision's operators may need (docs/installation.md)."""

import cl_cnaps  # noqa: F401
