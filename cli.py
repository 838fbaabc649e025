"""Launcher: `python cli.py ...` is `cl-cnaps ...`."""

from cl_cnaps.commands import run

if __name__ == "__main__":
    run()
