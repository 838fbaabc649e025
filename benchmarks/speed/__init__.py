"""What is claimed about speed, measured: each benchmark against a plain way of doing the same, in one run."""
