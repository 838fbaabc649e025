"""Processes that compute keep the memory they free."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
import cl_cnaps
if sys.argv[1] == "set":
    cl_cnaps.set_up_torch(threads=1)
    assert torch.get_num_threads() == 1
torch.zeros(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.zeros(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_freed_memory_is_used_again() -> None:
    pages = 40 * 10_000_000 * 4 // resource.getpagesize()
    assert faults("plain") > 0.9 * pages, (
        "every tensor's pages are new without it, or the test proves nothing"
    )
    assert faults("set") < 0.5 * pages


RELEASE = """
import torch
from pathlib import Path
from cl_cnaps.torch_setup import release_spare_memory, set_up_torch

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

set_up_torch()
kept = [torch.zeros(1_000_000) for _ in range(40)]
guard = torch.zeros(1000)
del kept
before = resident()
assert not release_spare_memory(1 << 40)
assert release_spare_memory(1 << 20)
print(before - resident())
assert not release_spare_memory(1 << 20), "nothing has been taken since"
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_much_spare_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", RELEASE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0.9 * 40_000_000 * 4 / resource.getpagesize()
