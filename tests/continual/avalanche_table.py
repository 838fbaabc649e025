"""Which plugins, metrics and loggers of Avalanche work with the strategies: a table for docs/avalanche.md.

Every one is tried on a small stream. `python tests/continual/avalanche_table.py` writes the table; a test compares it.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cl_cnaps  # noqa: F401  # before Avalanche, for torchvision's sake

# isort: split
import avalanche.evaluation.metrics as avalanche_metrics
import avalanche.logging as avalanche_logging
import avalanche.training.plugins as avalanche_plugins
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.core import BasePlugin
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from continual.small_strategies import evaluated, make
from continual.small_streams import support_and_query

from cl_cnaps.continual.one_pass import WITHOUT_EFFECT
from cl_cnaps.errors import BadInputError

PAGE = Path(__file__).parents[2] / "docs" / "avalanche.md"
BEGIN, END = "<!-- generated: tests/continual/avalanche_table.py -->", "<!-- end generated -->"

BENCHMARK = nc_benchmark(
    *support_and_query(shots=3, queries=3), n_experiences=3, task_labels=True, fixed_class_order=[*range(6)]
)

NOT_TRIED = {
    "gpu_usage_metrics": "it needs a GPU, and watches the machine, not the strategy",
    "WandBLogger": "as with every strategy: it needs an account, and Avalanche 0.6 calls functions of an older wandb",
}

Row = tuple[str, str, str, str]


def rows() -> Iterator[Row]:
    """Yield kind, name, result and reason of everything that Avalanche has."""
    usual = _outputs()
    for name, kind in sorted(_plugins().items()):
        yield ("plugin", name, *_plugin(name, kind, usual))
    for name, make_metric in sorted(_metrics().items()):
        yield ("metric", name, *_tried(name, lambda one=make_metric: EvaluationPlugin(one()), usual))
    for name, kind in sorted(_loggers().items()):
        yield ("logger", name, *_tried(name, lambda one=kind: _logging(one), usual))


def table() -> str:
    """Return the rows as Markdown."""
    lines = ["| kind | name | result | remark |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {kind} | `{name}` | {how} | {why} |" for kind, name, how, why in rows())])


def written() -> str:
    """Return the table as the page has it."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()


def _plugins() -> dict[str, type]:
    found: dict[str, type] = {"EvaluationPlugin": EvaluationPlugin}
    for module in pkgutil.iter_modules(avalanche_plugins.__path__):
        content = importlib.import_module(f"{avalanche_plugins.__name__}.{module.name}")
        for name, kind in vars(content).items():
            if inspect.isclass(kind) and issubclass(kind, BasePlugin) and kind.__module__ == content.__name__:
                found[name] = kind
    return found


def _metrics() -> dict[str, Callable[[], Any]]:
    """Every function and class that makes a metric, with all its levels switched on."""

    def switched_on(function: Callable[..., Any]) -> Callable[[], Any]:
        options = {
            name: True for name, one in inspect.signature(function).parameters.items() if one.default is False
        }
        options.pop("wandb", None)
        return lambda: function(**options, **({"num_classes": 6} if "confusion" in function.__name__ else {}))

    found: dict[str, Callable[[], Any]] = {
        name: switched_on(function)
        for name, function in vars(avalanche_metrics).items()
        if inspect.isfunction(function) and name.endswith("_metrics")
    }
    for name in ("WeightCheckpoint", "CumulativeAccuracyPluginMetric", "CumulativeForgettingPluginMetric"):
        found[name] = getattr(avalanche_metrics, name)
    return found


def _loggers() -> dict[str, Any]:
    return {
        name: kind
        for name, kind in vars(avalanche_logging).items()
        if inspect.isclass(kind) and name.endswith("Logger") and name != "BaseLogger"
    }


def _logging(kind: Any) -> EvaluationPlugin:
    logger = kind(io.StringIO()) if kind.__name__ == "TextLogger" else kind()
    return EvaluationPlugin(accuracy_metrics(epoch=True, experience=True, stream=True), loggers=[logger])


def _plugin(name: str, kind: type, usual: torch.Tensor) -> tuple[str, str]:
    plugin = kind.__new__(kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(plugins=[plugin])
    except BadInputError as error:
        return "refused", str(error).split(f"{name}: ")[1]
    if name == "EvaluationPlugin":
        return _tried(name, lambda: EvaluationPlugin(accuracy_metrics(stream=True)), usual)
    how, why = _tried(name, lambda: None, usual, kind())
    return ("runs, no effect", WITHOUT_EFFECT[name]) if name in WITHOUT_EFFECT else (how, why)


def _tried(name: str, evaluator: Callable[[], Any], usual: torch.Tensor, *plugins: Any) -> tuple[str, str]:
    if name in NOT_TRIED:
        return "not tried", NOT_TRIED[name]
    if not torch.equal(_outputs(evaluator, *plugins), usual):
        return "changes the answers", ""
    return "works", ""


def _outputs(evaluator: Callable[[], Any] = lambda: None, *plugins: Any) -> torch.Tensor:
    """What a strategy answers that has learned, and was evaluated, with these plugins."""
    silent, before = io.StringIO(), Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        redirect_stdout(silent),
        redirect_stderr(silent),
    ):
        warnings.simplefilter("ignore")
        os.chdir(folder)  # loggers write here
        try:
            strategy = make(plugins=plugins, evaluator=evaluator(), eval_every=0)
            for experience in BENCHMARK.train_stream:
                strategy.train(experience, eval_streams=[BENCHMARK.test_stream])
                strategy.eval(BENCHMARK.test_stream)
            answers = evaluated(strategy, BENCHMARK.test_stream)
        finally:
            os.chdir(before)
    return torch.cat([answers.outputs(number) for number in range(len(BENCHMARK.test_stream))])


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}", encoding="utf-8")
