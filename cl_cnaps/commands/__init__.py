"""The command line: one file per verb, thin. Heavy imports stay inside the functions."""

import os
import sys


def run() -> None:
    """Run the `cl-cnaps` command; Ctrl-C before its modules are loaded ends it without a traceback too."""
    try:
        from cl_cnaps.commands.main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
        os._exit(130)
