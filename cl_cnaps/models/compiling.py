"""The folded backbone as one compiled program, for runs that embed so many images that compiling pays.

`torch.compile` joins what stands between the convolutions into single passes over memory. The folded weights are
inputs of the program and not constants in it, and the number of images is free: one compilation serves every task
and every batch. Inductor keeps what it made in this package's cache folder, where the next process finds it.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.folding import TOLERANCE, FoldedNetwork
from cl_cnaps.paths import cache_root

CompileChoice = Literal["auto", "on", "off"]

PAYS_FROM: Mapping[str, int | None] = {"efficientnet-lite0": 150_000, "resnet18": None}
"""Images from which on compiling saves more than it takes, nothing being cached: as `benchmarks/speed/embed.py`
measured with two threads on two cores (the records are in `results/speed`), rounded up; None where it saved nothing.

Fixed numbers and not measured anew in each run, so that the same command does the same arithmetic every time.
"""
_PAYS_FROM_ELSEWHERE = 150_000
_FEWEST = 2
"""PyTorch compiles batches of one image apart from all others; they are run as two."""
_TRIED_WITH = 4

Forward = Callable[[dict[str, Tensor], Tensor], Tensor]


@dataclass(frozen=True)
class Decision:
    """Whether a run compiles, and why, in words."""

    compile: bool
    why: str


def decide(choice: CompileChoice, backbone: str, device: torch.device, images: int) -> Decision:
    """Whether to compile for a run that embeds so many images."""
    if choice not in ("auto", "on", "off"):
        raise BadInputError(f"compiling is auto, on or off, not {choice!r}")
    if choice != "auto":
        return Decision(choice == "on", "as asked")
    if device.type != "cpu":
        return Decision(False, f"not compiled: when it pays was measured on CPUs only, and this is {device}")
    enough = PAYS_FROM.get(backbone, _PAYS_FROM_ELSEWHERE)
    if enough is None:
        return Decision(False, f"not compiled: that was measured to save nothing on {backbone}")
    pays = f"compiling pays from about {enough:,} images on, and this run embeds {images:,}"
    return Decision(images >= enough, pays if images >= enough else f"not compiled: {pays}")


@dataclass(frozen=True)
class CompiledNetwork(FoldedNetwork):
    """A network with its weights for one task, run by a program that all tasks share."""

    run: Forward

    def __call__(self, prepared: Tensor) -> Tensor:
        """Features N x D of prepared images."""
        n = len(prepared)
        if n == 0:
            return super().__call__(prepared)
        if n < _FEWEST:
            prepared = prepared.repeat(_FEWEST, 1, 1, 1)
        prepared = prepared.contiguous(memory_format=torch.channels_last)
        torch._dynamo.mark_dynamic(prepared, 0)
        return self.run(dict(self.network.named_parameters()), prepared)[:n]


@dataclass(frozen=True)
class Compilation:
    """What came of compiling a network: a program, or the reason why there is none."""

    run: Forward | None
    says: str

    def of(self, folded: FoldedNetwork) -> FoldedNetwork:
        """A task's network, run by the program if there is one."""
        if self.run is None:
            return folded
        return CompiledNetwork(folded.network, folded.bytes_per_image, self.run)


@torch.no_grad()
def compile_network(folded: FoldedNetwork, image_size: int) -> Compilation:
    """Compile a folded network, for the number of threads that PyTorch is set to; try it against the plain one.

    Whatever goes wrong leaves the plain network in use and is said.
    """
    like = next(folded.network.parameters())
    if like.device.type == "cpu" and shutil.which(_cpp_compiler()) is None:
        return Compilation(
            None,
            f"not compiled: there is no C++ compiler {_cpp_compiler()!r} here; install one or name it in CXX",
        )
    compilation = Compilation(_program(folded.network), "")
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(_TRIED_WITH, 3, image_size, image_size, generator=generator).to(like)
    noise = noise.contiguous(memory_format=torch.channels_last)
    plain = folded(noise)
    start = time.perf_counter()
    try:
        with _cached_in(cache_root() / "compiled") as folder:
            compiled = compilation.of(folded)(noise)
    except Exception as error:  # compilers fail in many ways, and the plain network is as good
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return Compilation(None, f"not compiled: the compiler failed ({reason})")
    if not bool((plain - compiled).abs().max() <= TOLERANCE * plain.abs().max()):
        return Compilation(None, "not compiled: the compiled network gives other features than the plain one")
    seconds = time.perf_counter() - start
    return Compilation(compilation.run, f"compiled in {seconds:.0f} s; kept for later runs in {folder}")


def _program(network: nn.Module) -> Forward:
    # With tensors of its own: PyTorch notes which inputs are one and the same, and no task's may be.
    network = copy.deepcopy(network)

    def forward(weights: dict[str, Tensor], prepared: Tensor) -> Tensor:
        features: Tensor = torch.func.functional_call(network, weights, (prepared,))
        return features

    compiled: Forward = torch.compile(forward, fullgraph=True)
    return compiled


def _cpp_compiler() -> str:
    """The compiler that inductor calls."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return os.environ.get("CXX") or usual


@contextmanager
def _cached_in(folder: Path) -> Iterator[Path]:
    """Inductor keeps its files in `folder` meanwhile; by itself it would take a folder that a restart may clear."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
