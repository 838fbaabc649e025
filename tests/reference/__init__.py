"""Slow float64 twins of the formulas, written straight from the paper and sharing no code with the package."""
