"""Plain implementations in a process of their own, with PyTorch as it comes.

`cl_cnaps.torch_setup` changes how a whole process keeps memory and treats tiny numbers, so what we compare with runs
where that was never done. It is asked for one round at a time, so that both sides still take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from cl_cnaps.errors import ClCnapsError

_READY = "ready"
_ENDED = "the process of the plain implementation ended; its error is above"


class StockProcess:
    """`python -m MODULE ARGUMENTS`, which must end in `serve`. In a `with` statement; calling it is one round."""

    def __init__(self, module: str, *arguments: str) -> None:
        threads = str(torch.get_num_threads())
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": threads},
        )

    def __enter__(self) -> StockProcess:
        try:
            self._answer(_READY)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self) -> Any:
        """One round: what its work returns."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("again\n")
        except BrokenPipeError:
            raise ClCnapsError(_ENDED) from None
        return self._answer(None)

    def _answer(self, expected: str | None) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClCnapsError(_ENDED)
        answer = json.loads(line)
        if expected is not None and answer != expected:
            raise ClCnapsError(f"the process of the plain implementation began with {answer!r}")
        return answer


def serve(work: Callable[[], Any]) -> None:
    """The other side: do `work` whenever asked, until the one who asks is gone."""
    print(json.dumps(_READY), flush=True)
    for _ in sys.stdin:
        print(json.dumps(work()), flush=True)
