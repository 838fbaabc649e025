"""The command line: one file per verb, thin. Heavy imports stay inside the functions."""

import atexit
import os
import shlex
import signal
import sys
import threading

_INTERRUPTED = 130
_CRASHED = object()


def run() -> None:
    """Run the `cl-cnaps` command; Ctrl-C before its modules are loaded ends it without a traceback too."""
    code: object = _CRASHED

    def leave() -> None:
        """End the process here: to take down the libraries that are loaded lasts a second and more."""
        if isinstance(code, int | None):
            try:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
            except (OSError, ValueError):  # Python says so as it ends
                return
            os._exit(code or 0)

    for name in ("stdout", "stderr"):  # closed by `>&-`: no other file may take its number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    atexit.register(leave)  # the first that is registered is the last that runs
    try:
        from cl_cnaps.commands.main import main

        main()
    except KeyboardInterrupt:
        line = shlex.join(["cl-cnaps", *sys.argv[1:]]).encode("unicode_escape").decode()
        sys.stderr.write(f"interrupted; to start again: {line}\n")
        sys.stderr.flush()
        os._exit(_INTERRUPTED)
    except SystemExit as ended:
        code = ended.code
        if (
            threading.current_thread() is threading.main_thread()
        ):  # what is done is done: its exit code stands
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        raise
