"""The command line: one file per verb, thin. Heavy imports stay inside the functions."""
