"""Time and memory of one meta-training task, against a bare forward and backward pass of the backbone.

    python benchmarks/speed/metatrain.py [--json] [--threads 2] [--repeats 3] [--model simple] [--form plain]

One task of 200 support and 200 query images at 84 pixels on ResNet-18, each form in a process of its own:

- bare: the backbone's forward and backward pass on the same 400 images, with the gradients that FiLM needs (of the
  batch-norms that it modulates) and no others;
- plain: a training task in one piece;
- parts: a training task with `images_at_once`, which repeats forward passes and keeps little.

A ratio is a form's median time over that of the bare pass, timed in the same process and interleaved with it. Memory
is the largest resident size of a process that runs nothing but that form. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cl_cnaps.episodes.batch import EpisodeBatch
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, make_model
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.task_loss import add_gradient

WAY, IMAGES, SIZE = 20, 200, 84
AT_ONCE = 32
FORMS = ("bare", "plain", "parts")


def a_task() -> EpisodeBatch:
    """Noise has no classes, but costs what pictures cost."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2 * IMAGES, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    labels = torch.arange(WAY).repeat_interleave(IMAGES // WAY)
    return EpisodeBatch(WAY, images[:IMAGES], labels, images[IMAGES:], labels)


def a_model(name: str) -> CnapsModel:
    config = CnapsConfig.papers(name)  # type: ignore[arg-type]
    return make_model(config, load_backbone("resnet18", weights="random")).train()


def bare_pass(model: CnapsModel, images: Tensor) -> None:
    network = model.backbone.network
    modulated = [network.get_submodule(layer.name) for layer in model.backbone.film_layers]
    for norm in modulated:
        norm.requires_grad_(True)
    network(model.backbone.prepare(images)).sum().backward()
    for norm in modulated:
        norm.requires_grad_(False).zero_grad(set_to_none=True)


def forms(model: CnapsModel, task: EpisodeBatch) -> dict[str, Callable[[], object]]:
    images = torch.cat([task.support_images, task.query_images])
    plain = Optimisation(tasks=1)
    parts = Optimisation(tasks=1, images_at_once=AT_ONCE)
    return {
        "bare": lambda: bare_pass(model, images),
        "plain": lambda: add_gradient(model, task, plain),
        "parts": lambda: add_gradient(model, task, parts),
    }


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def times(form: str, model: CnapsModel, repeats: int) -> dict[str, float]:
    """Median seconds of the form and of the bare pass, interleaved so that a busy machine slows both."""
    functions = forms(model, a_task())
    own, bare = [], []
    for repeat in range(repeats + 1):
        pair = seconds(functions["bare"]), seconds(functions[form])
        if repeat:  # the first round warms up
            bare.append(pair[0])
            own.append(pair[1])
    return {"seconds": statistics.median(own), "bare_seconds": statistics.median(bare)}


def peak_megabytes(form: str, model: CnapsModel) -> float:
    """Largest resident size of this process, which must not have run anything else."""
    function = forms(model, a_task())[form]
    for _ in range(2):  # the optimiser's gradients exist from the first task on
        function()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(arguments: argparse.Namespace) -> None:
    """What a process of its own does: measure one thing and print it."""
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    model = a_model(arguments.model)
    if arguments.measure == "memory":
        print(json.dumps({"peak_mb": round(peak_megabytes(arguments.form, model))}))
    else:
        print(json.dumps(times(arguments.form, model, arguments.repeats)))


def measured(arguments: argparse.Namespace, form: str, what: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--form", form, "--measure", what, "--model", arguments.model]
    command += ["--threads", str(arguments.threads), "--repeats", str(arguments.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", choices=["simple", "transductive", "cnaps"], default="simple")
    parser.add_argument("--form", choices=FORMS, help="only this form")
    parser.add_argument("--measure", choices=["memory", "time"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        one(arguments)
        return
    for form in (arguments.form,) if arguments.form else FORMS:
        row: dict[str, object] = {
            "form": form,
            "model": arguments.model,
            **measured(arguments, form, "memory"),
        }
        if form != "bare":
            taken = measured(arguments, form, "time")
            row |= {key: round(value, 3) for key, value in taken.items()}
            row["ratio"] = round(taken["seconds"] / taken["bare_seconds"], 2)
        row |= {"images": 2 * IMAGES, "threads": arguments.threads, "torch": torch.__version__}
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            speed = f", {row['seconds']} s, {row['ratio']} times a bare pass" if "ratio" in row else ""
            print(f"{arguments.model} {form:6s} {row['peak_mb']} MB{speed}", flush=True)
    if not arguments.json:
        print(f"({platform.machine()}, {arguments.threads} threads, torch {torch.__version__})")


if __name__ == "__main__":
    main()
