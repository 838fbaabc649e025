"""Ctrl-C and SIGTERM: every verb ends promptly with 130, one line, and no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import util
from pathlib import Path

import pytest
from faults import tiny

CALLS_BACK = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from cl_cnaps.commands import options
from cl_cnaps.commands.main import main
import click

@click.command()
@options.resume
def verb(resume):
    {body}

main.add_command(verb)
main()
print("not interrupted")
"""


def interrupted(folder: Path, body: str, *more: str) -> tuple[int, str]:
    """Run a verb with this body; return its exit code and what it printed."""
    script = CALLS_BACK.format(folder=str(folder), body=body.replace("\n", "\n    "))
    words = [sys.executable, "-c", script, "verb", *more]
    done = subprocess.run(words, cwd=folder, env=tiny.environment(folder), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_one_line_that_continues(tmp_path: Path, number: str, more: tuple[str, ...]) -> None:
    code, printed = interrupted(tmp_path, f"signal.raise_signal(signal.{number})", *more)
    assert (code, printed) == (130, "interrupted; to continue: cl-cnaps verb --resume\n")


def test_a_library_that_goes_on(tmp_path: Path) -> None:
    """An interrupt in a module that is loaded, in a destructor and in a C callback is not lost."""
    (tmp_path / "swallows.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
    )
    deleted = "class Deleted:\n    def __del__(self):\n        signal.raise_signal(signal.SIGINT)\nDeleted()"
    for body in ("import swallows", deleted):
        code, printed = interrupted(tmp_path, body)
        assert (code, printed) == (130, "interrupted; to continue: cl-cnaps verb --resume\n"), body


def test_a_second_one_ends_at_once(tmp_path: Path) -> None:
    body = (
        "import time\ntry:\n    signal.raise_signal(signal.SIGINT)\nfinally:\n    time.sleep(1.1)\n"
        "    signal.raise_signal(signal.SIGINT)\n    time.sleep(60)"
    )
    assert interrupted(tmp_path, body) == (130, "interrupted; to continue: cl-cnaps verb --resume\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_process_that_starts_is_whole_before_its_parent_leaves(tmp_path: Path, number: str) -> None:
    """Another thread may take the signal, whatever the one that starts the process holds back."""
    script = tmp_path / "starts.py"
    script.write_text(
        "import multiprocessing, os, signal, threading, time\n"
        "from cl_cnaps.processes import interrupts_wait\n"
        "if __name__ == '__main__':\n"
        "    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore it\n"
        "        signal.signal(number, signal.default_int_handler)\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    try:\n"
        "        with interrupts_wait():\n"
        "            process = multiprocessing.get_context('spawn').Process(target=time.sleep, args=(0.2,))\n"
        f"            os.kill(0 if {number!r} == 'SIGINT' else os.getpid(), signal.{number})\n"
        "            time.sleep(0.1)\n"
        "            process.start()\n"
        f"            os.kill(0 if {number!r} == 'SIGINT' else os.getpid(), signal.{number})\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n        process.join()\n        print(process.exitcode)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env=tiny.environment(tmp_path), capture_output=True, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_worker_obeys_its_parent_alone(tmp_path: Path) -> None:
    script = tmp_path / "obeys.py"
    script.write_text(
        "import multiprocessing, os, subprocess, time\n"
        "from cl_cnaps.processes import end_with_parent, interrupts_wait\n"
        "def work(ready):\n    end_with_parent()\n    ready.set()\n    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    ready = context.Event()\n"
        "    with interrupts_wait():\n"
        "        process = context.Process(target=work, args=(ready,))\n        process.start()\n"
        "    ready.wait()\n"
        "    for signal in ('-INT', '-TERM'):\n        subprocess.run(['kill', signal, str(process.pid)])\n"
        "    process.join(0.5)\n    print(process.is_alive())\n"
        "    process.terminate()\n    process.join()\n    print(process.exitcode)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=tiny.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.stdout, done.stderr) == ("True\n1\n", "")


def test_before_the_command_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from cl_cnaps.commands import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", script, "stream"],
        env=tiny.environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted; to start again: cl-cnaps stream\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_after_the_command_is_done(tmp_path: Path, number: str) -> None:
    """While Python ends, a signal changes neither the exit code nor what is printed."""
    script = (
        "import atexit, os, signal, sys\nfrom cl_cnaps.commands import main as command, run\nmain = command.main\n"
        "def signalled():\n"
        "    atexit.register(lambda: sys.stderr.write('ends'))\n"
        f"    atexit.register(lambda: os.kill(os.getpid(), signal.{number}))\n    main()\n"
        "command.main = signalled\nrun()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        env=tiny.environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "ends")


def test_the_end_takes_no_library_down(tmp_path: Path) -> None:
    """What other parts do at the end is done, and what they print is there; modules are left as they are."""
    script = (
        "import atexit, sys\nfrom cl_cnaps.commands import main as command, run\nmain = command.main\n"
        "class Slow:\n    def __del__(self): sys.__stderr__.write('taken down')\n"
        "def slow():\n    command.kept = Slow()\n    atexit.register(lambda: print('last', end=''))\n    main()\n"
        "command.main = slow\nrun()"
    )
    for line, code in (["--version"], 0), (["stream", "--shots", "0"], 2):
        done = subprocess.run(
            [sys.executable, "-c", script, *line],
            env=tiny.environment(tmp_path),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout[-4:]) == (code, "last")
        assert "taken down" not in done.stderr


def test_semaphores_that_are_left_are_removed_without_a_word(tmp_path: Path) -> None:
    body = "import multiprocessing\nkept = multiprocessing.get_context('spawn').Semaphore()\nos._exit(130)"
    assert interrupted(tmp_path, body) == (130, "")


def ends_in_order(ended: tiny.Ended) -> None:
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err, ended.err
    line = ended.err.splitlines()[-1]
    assert line.startswith(("interrupted; to continue: cl-cnaps ", "interrupted; to start again: cl-cnaps "))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", [verb for verb in tiny.VERBS if "--workers" in tiny.VERBS[verb]])
def test_while_the_first_worker_starts(tmp_path: Path, verb: str, number: signal.Signals) -> None:
    """Terminals and cluster managers send signals to all processes of a command, and any thread may take them."""

    def interrupt_the_first_start() -> None:
        start = util.spawnv_passfds

        def start_and_interrupt(path: bytes, words: list[object], handles: list[int]) -> int:
            process = start(path, words, handles)
            if "spawn_main" in str(words):
                util.spawnv_passfds = start
                everyone = f"-{os.getpgrp()}"
                subprocess.run(["kill", f"-{int(number)}", "--", everyone], start_new_session=True)
                time.sleep(0.1)
            return int(process)

        util.spawnv_passfds = start_and_interrupt
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

    tiny.prepare(tmp_path)
    ends_in_order(tiny.forked(tiny.VERBS[verb], tmp_path, first=interrupt_the_first_start))


@pytest.mark.slow
@pytest.mark.parametrize("verb", tiny.VERBS)
def test_while_it_loads_or_works(tmp_path: Path, verb: str) -> None:
    tiny.prepare(tmp_path)
    if verb in ("report", "plot"):
        assert tiny.forked([*tiny.VERBS["stream"], "--out", "records"], tmp_path).code == 0
    for after in (1.0, 4.0):
        ended = tiny.run(tiny.VERBS[verb], tmp_path, after, signal.SIGINT)
        if ended.code == 0 or (ended.code == -signal.SIGINT and not ended.err):
            break  # it had ended, or Python was starting
        ends_in_order(ended)
        assert ended.seconds < 15
