"""Few-shot evaluation: which tasks of which data sets, scored over many tasks, with intervals and ranks."""
