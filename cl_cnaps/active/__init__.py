"""Active learning: a model that chooses which images it wants labelled, and how fast that makes it better."""
