"""What is computed from accuracies: intervals, forgetting, areas, ranks."""
