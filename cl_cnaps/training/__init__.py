"""Meta-training of the adaptation, and supervised training of the backbone under it."""
