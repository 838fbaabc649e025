"""Torch modules: frozen backbones, FiLM, task encoders, adaptation networks, and the CNAPS models made of them."""
