"""Streams of tasks: encodings, memory, Avalanche strategies, baselines, protocol."""
