"""The version of this package, and nothing else, so that every part and the build can read it."""

__version__ = "0.1.0"
