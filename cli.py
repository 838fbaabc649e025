"""Launcher: `python cli.py ...` is `cl-cnaps ...`."""

from cl_cnaps.commands.main import main

if __name__ == "__main__":
    main()
