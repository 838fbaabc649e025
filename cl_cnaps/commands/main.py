"""The `cl-cnaps` command: its verbs, and how each of them ends."""

from __future__ import annotations

import contextlib
import errno
import importlib
import multiprocessing
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType
from typing import Any

import click

from cl_cnaps import __version__
from cl_cnaps.commands.display import echo
from cl_cnaps.errors import ClCnapsError, printable, reason, shortened

_VERBS = {
    "stream": "experiments",
    "evaluate": "experiments",
    "active": "experiments",
    "ablate": "experiments",
    "learn": "learn",
    "predict": "learn",
    "sweep": "sweep",
    "metatrain": "train",
    "pretrain": "train",
    "plot": "report",
    "report": "report",
    "data": "data",
    "weights": "weights",
    "recipes": "recipes",
    "bench": "bench",
}
"""The verbs and their modules, in the order of the help; a module is loaded when its verb is used."""
EXIT_INTERRUPTED = 130
"""After Ctrl-C or SIGTERM, from every verb."""
EXIT_PIPE_CLOSED = 141
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Errors of a disk, which libraries raise without the name of the file."""
_IMPATIENT = 1.0
"""Seconds after which another signal is a person's second one; launchers pass on the first one twice."""
_PATIENCE = 10
"""Seconds that a command has to unwind."""


_NOT_LEAKED = "ignore:resource_tracker:UserWarning"
"""What an interrupted command leaves of semaphores Python removes itself, with a warning in the terminal."""


class _Verbs(click.Group):
    """A group that prints every error as one line instead of a traceback."""

    _context: click.Context
    _line: list[str]
    """What was typed."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the verbs."""
        return [*_VERBS, *(name for name in self.commands if name not in _VERBS)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a verb; its module is loaded now."""
        if name in _VERBS and name not in self.commands:
            module = importlib.import_module(f"cl_cnaps.commands.{_VERBS[name]}")
            self.add_command(getattr(module, name))
        return super().get_command(context, name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; Ctrl-C and SIGTERM end it in order."""
        if _NOT_LEAKED not in sys.warnoptions:  # processes that are started have it as -W
            sys.warnoptions.append(_NOT_LEAKED)
        with _interruptible(self._leave):
            return super().main(*args, **kwargs)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Refuse empty arguments, which are variables of the shell that are not set: none means anything here."""
        for before, argument in zip(["", *args], args, strict=False):
            if not argument.strip() or (argument.startswith("--") and argument.endswith("=")):
                name = argument.rstrip("=").strip() or before or "the first"
                raise click.UsageError(
                    f"an argument is empty ({name}): is a variable of the shell not set?", context
                )
        self._context, self._line = context, ["cl-cnaps", *args]
        try:
            return super().parse_args(context, args)
        except BrokenPipeError:  # `cl-cnaps --help | head`
            _broken_output()
            raise SystemExit(EXIT_PIPE_CLOSED) from None
        except OSError as error:  # `cl-cnaps --help > /dev/full`
            _broken_output()
            raise click.ClickException(f"standard output cannot be written: {error.strerror}") from None

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()  # what cannot be written is an error now, not when Python ends
            return result
        except ClCnapsError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            self._end()
            raise SystemExit(EXIT_INTERRUPTED) from None
        except click.UsageError as error:
            raise click.UsageError(printable(shortened(error.format_message())), error.ctx) from None
        except (click.ClickException, click.exceptions.Exit, click.exceptions.Abort):
            raise
        except Exception as error:
            if context.params["debug"]:
                raise
            output = _broken_output()
            if isinstance(output or error, BrokenPipeError):  # `cl-cnaps ... | head`
                raise SystemExit(EXIT_PIPE_CLOSED) from None
            if output is not None:
                line = f"standard output cannot be written: {output.strerror}"
            elif isinstance(error, OSError) and (error.filename is not None or error.errno in _DISK):
                line = f"{error.filename or 'a file'} cannot be written or read: {error.strerror}"
            elif _out_of_memory(error):
                line = f"not enough memory ({reason(error)}); a smaller --image-size or fewer --workers take less"
            else:
                line = crash_line(error)
            raise click.ClickException(printable(line)) from error

    def _end(self) -> None:
        """End what this process started, and print the line that continues."""
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch's loader raises when a process of it ends
        for child in multiprocessing.active_children():
            child.kill()  # what it leaves half-written the next run removes
            child.join(1)  # one that still starts must not miss what this process takes down
        if os.environ.get("RANK", "0") == "0":  # one of those that torchrun started
            words, verb = list(self._line), self.commands.get(self._context.invoked_subcommand or "", self)
            can_resume = any(parameter.name == "resume" for parameter in verb.params)
            does_resume = can_resume and self._context.meta.get("resumable", lambda: True)()
            if does_resume and "--resume" not in words:
                words.append("--resume")
            how = "continue" if does_resume or verb.name == "sweep" else "start again"
            echo(f"interrupted; to {how}: {printable(shlex.join(words))}", err=True)

    def _leave(self) -> None:
        self._end()
        os._exit(EXIT_INTERRUPTED)


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; PyTorch has a kind of error for it on GPUs alone."""
    text = f"{type(error).__name__} {error}"
    return isinstance(error, MemoryError) or "OutOfMemoryError" in text or "t allocate memory" in text


def crash_line(error: BaseException) -> str:
    """Write the traceback to a log file and return the line that names it.

    The code is a digest of the kind of error and of where it was raised: the same fault has the same code everywhere.
    """
    import hashlib
    import platform
    import traceback

    from cl_cnaps.paths import cache_root

    frames = traceback.extract_tb(error.__traceback__)
    here = [f"{frame.name} {frame.line}" for frame in frames if "cl_cnaps" in frame.filename]
    code = hashlib.sha256(repr((type(error).__name__, here)).encode()).hexdigest()[:6]
    file = cache_root() / "logs" / f"crash-{code}.txt"
    text = "\n".join(
        (
            f"cl-cnaps {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"arguments: {sys.argv[1:]!r}",
            *traceback.format_exception(error),
        )
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        where = f"its traceback is in {file}; please report it with that file"
    except OSError:
        where = f"{file} could not be written: repeat the command as `cl-cnaps --debug ...` and report what it prints"
    return f"unforeseen {type(error).__name__} ({reason(error)}), code {code}: {where}"


def _broken_output() -> OSError | None:
    """Return why standard output takes nothing more, if so; what waits to be printed is then dropped."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


@contextmanager
def _interruptible(leave: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM unwind the command.

    It calls `leave` instead where unwinding does harm or does not help: while modules are loaded, whose loading some
    libraries go on with; at another signal; and if the command has not ended after some seconds.
    """
    first: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal first
        loading = any(one.f_code.co_filename.startswith("<frozen importlib") for one, _ in walk_stack(frame))
        late = first is not None and time.monotonic() - first > _IMPATIENT
        if loading or late or number not in signals:
            leave()
        if first is None:
            first = time.monotonic()
            if hasattr(signal, "SIGALRM"):
                signal.alarm(_PATIENCE)
            raise KeyboardInterrupt

    def again(unraisable: Any) -> None:
        """Leave, if the interrupt came in a destructor or callback, where it is lost."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            leave()
        sys.__unraisablehook__(unraisable)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = {signal.SIGINT, signal.SIGTERM}
    handled = signals | ({signal.SIGALRM} if hasattr(signal, "SIGALRM") else set())
    hook, sys.unraisablehook = sys.unraisablehook, again
    before = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cl-cnaps")
@click.option("--debug", is_flag=True, help="Show the traceback of an error that nobody foresaw.")
def main(debug: bool) -> None:
    """Simple CNAPS and Transductive CNAPS on streams of tasks, few-shot episodes and in active learning.

    Exit codes of every verb: 0 done; 1 an error, in one line; 2 wrong usage; 130 stopped by Ctrl-C or SIGTERM, with the
    line that continues; 141 the reader of a pipe went away.
    """
