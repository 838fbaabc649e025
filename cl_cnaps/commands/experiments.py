"""`cl-cnaps stream`, `evaluate`, `active` and `ablate`: one command for each kind of experiment, made alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import Display, echo, footer, terminal
from cl_cnaps.experiments import kind
from cl_cnaps.experiments.options import OPTIONS

if TYPE_CHECKING:
    from cl_cnaps.report.view import View

_RUN_OPTIONS = {
    "out": options.out,
    "resume": options.resume,
    "workers": options.workers,
    "keep": options.keep_features,
    "plots": options.plots,
    "download": options.download,
    "as_json": options.as_json,
    "quiet": options.quiet,
}
"""How and where an experiment is run; none of these decides a number."""
_WITHOUT = {"stream": ("workers",), "active": ("keep",)}
"""A stream runs in one process; active learning adapts anew after every label."""

HELP: Mapping[str, str] = {
    "stream": """Learn a stream of tasks and score every task after each step.

    \b
    cl-cnaps stream --encoding first --head single
    cl-cnaps stream --benchmark split-cifar10 --model transductive --encoding all
    cl-cnaps stream --benchmark folder:photos.zip --classes-per-task 3
    cl-cnaps stream --metric cosine
    cl-cnaps stream --variant feot
    cl-cnaps stream --model ewc --baseline-on network
    cl-cnaps stream --model simple,ranpac,lda --metrics final,forgetting,nll
    """,
    "evaluate": """Measure accuracy on many few-shot tasks.

    TARGET is meta-dataset (all of its data sets that are there), mini-imagenet, tiered-imagenet, or any source:
    a name from `data list`, folder:PATH, records:PATH or features:FILE.

    \b
    Examples:
      cl-cnaps evaluate mini-imagenet --model transductive
      cl-cnaps evaluate meta-dataset --specs meta_dataset_specs --tasks 100
      cl-cnaps evaluate meta-dataset --specs meta_dataset_specs --variant cot
      cl-cnaps evaluate folder:photos.zip --ways 5 --shots 1,5
    """,
    "active": """Let a model choose the images that are labelled next, and measure it after each round.

    All strategies of a run start from the same labels, pool and test set.

    \b
    cl-cnaps active
    cl-cnaps active --source omniglot --alphabet all --model transductive
    cl-cnaps active --source folder:photos.zip --strategy random,entropy --per-round 5
    cl-cnaps active --source omniglot --paper --adaptation both --weights my-weights
    """,
    "ablate": """Compare a model with its variants on the same tasks, beside the paper's rows.

    \b
    adaptation    FiLM from each task's own encoding, one for all, a foreign one, and none
    metric        six distances to the classes, and FiT's two heads
    gmm           Gaussian mixtures in place of Simple and Transductive CNAPS
    transduction  which half of Transductive CNAPS helps: FEOT, COT, Transductive+
    refinement    none, unbounded, at least 2 and at most 4 steps; and the grid over both
    shots         class recall against the shots of the class
    queries       accuracy against the number of queries, on mini-ImageNet

    Rows that share features are scored on the same ones, embedded once; what an evaluation under --out has measured on
    the same tasks is taken from its record. Rows share their model's weights unless --weights gives them their own.

    \b
    Examples:
      cl-cnaps ablate metric --specs meta_dataset_specs --tasks 100
      cl-cnaps ablate transduction --sources omniglot,dtd --weights plus=runs/metatrain/plus/weights.safetensors
      cl-cnaps ablate queries
    """,
}


def _command(verb: str) -> click.Command:
    """Make the command of a kind of experiment."""

    def run(**given: Any) -> None:
        how = {name: given.pop(name, None) for name in _RUN_OPTIONS}
        run_experiment(verb, given, **how)

    function = run
    for name, option in reversed(_RUN_OPTIONS.items()):
        if name not in _WITHOUT.get(verb, ()):
            function = option(function)
    function = options.declared_options(OPTIONS[verb])(function)
    return click.command(verb, help=HELP[verb])(function)


def run_experiment(
    verb: str,
    given: Mapping[str, Any],
    *,
    out: Path,
    resume: bool,
    workers: int | None,
    keep: Path | None,
    plots: bool,
    download: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run an experiment, write its records, and print rows or tables."""
    from cl_cnaps.experiments.base import execute
    from cl_cnaps.torch_setup import set_up_torch

    options.writable(out)
    set_up_torch()
    config = OPTIONS[verb](**given)
    with Display(quiet or as_json) as display:
        display.begin("preparing", 1)
        display.show("opening data, loading the model")
        experiments = kind(verb).prepare(config, download=download, keep=keep)
    if not quiet:
        for line in dict.fromkeys(line for experiment in experiments for line in experiment.preface):
            click.echo(line, err=as_json)
    with Display(quiet or as_json) as display:
        records = execute(experiments, out, resume=resume, workers=workers, progress=display)
    from cl_cnaps.report.view import draw, view_of

    views = [view_of(record) for record in records]
    views = type(views[0]).compared(views, given.get("metrics") or ())
    reach = given.get("reach")
    if reach is not None:
        views = [view.to_reach(reach) for view in views]
    figures = draw(views) if plots else []
    if as_json:
        for view in views:
            for row in view.rows:
                echo(json.dumps({**row, "record": str(view.path)}))
            if not quiet:
                for missing in view.missing:
                    echo(f"missing: {missing['title']}: {missing['reason']}", err=True)
    elif not quiet:
        print_views(views, figures)


def print_views(views: Sequence[View], figures: Sequence[Path]) -> None:
    """Print the tables of records, then where data, weights and files are: the same lines for every verb."""
    from cl_cnaps.report.table import terminal_table

    console = terminal()
    kind_of: Any = type(views[0])
    for table in kind_of.tables(views):
        console.print(terminal_table(table))
        echo()
    rows = [one for view in views for row in view.rows for one in row.get("results", [row])]
    lines: list[tuple[str, object]] = []
    for label, key in (("data", "data_source"), ("weights", "weights_source")):
        for value in dict.fromkeys(row[key] for row in rows):
            lines.append((label, value))
    for pretraining in dict.fromkeys(row["backbone_pretraining"] for row in rows):
        words = "not pre-trained" if pretraining == "none" else f"pre-trained on {pretraining}"
        lines.append(("backbone", words))
    reused = dict.fromkeys(name for view in views for row in view.rows for name in row.get("reused", ()))
    lines += [("reused", name) for name in reused]
    lines += [("record", view.path) for view in views]
    footer([*lines, *(("figure", path) for path in figures if path.suffix == ".png")])


COMMANDS: Mapping[str, click.Command] = {verb: _command(verb) for verb in OPTIONS}
"""By verb."""
stream, evaluate, active, ablate = COMMANDS.values()
RUN_OPTIONS = tuple(_RUN_OPTIONS)
