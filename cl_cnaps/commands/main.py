"""The `cl-cnaps` command: its verbs, and how errors reach a person."""

from __future__ import annotations

import sys
from typing import Any

import click

from cl_cnaps import __version__
from cl_cnaps.commands.ablate import ablate
from cl_cnaps.commands.active import active
from cl_cnaps.commands.bench import bench
from cl_cnaps.commands.data import data
from cl_cnaps.commands.evaluate import evaluate
from cl_cnaps.commands.metatrain import metatrain
from cl_cnaps.commands.plot import plot
from cl_cnaps.commands.pretrain import pretrain
from cl_cnaps.commands.report import report
from cl_cnaps.commands.stream import stream
from cl_cnaps.commands.sweep import sweep
from cl_cnaps.commands.weights import weights
from cl_cnaps.errors import ClCnapsError


class _Verbs(click.Group):
    """A group that prints this project's errors as one message instead of a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ClCnapsError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:  # `cl-cnaps ... | head`
            sys.stderr.close()
            raise SystemExit(141) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise click.ClickException(
                f"{error.filename} cannot be written or read: {error.strerror}"
            ) from error


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cl-cnaps")
def main() -> None:
    """Simple CNAPS and Transductive CNAPS on streams of tasks, few-shot episodes and in active learning."""


for _verb in (
    stream, evaluate, active, ablate, sweep, metatrain, pretrain, plot, report, data, weights, bench,
):  # fmt: skip
    main.add_command(_verb)
