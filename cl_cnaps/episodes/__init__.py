"""Few-shot tasks: how they are described and sampled."""
