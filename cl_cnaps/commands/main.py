"""The `cl-cnaps` command: its verbs, and how errors reach a person."""

from __future__ import annotations

import sys
from typing import Any

import click

from cl_cnaps import __version__
from cl_cnaps.commands.bench import bench
from cl_cnaps.commands.data import data
from cl_cnaps.commands.experiments import COMMANDS
from cl_cnaps.commands.learn import learn
from cl_cnaps.commands.metatrain import metatrain
from cl_cnaps.commands.plot import plot
from cl_cnaps.commands.predict import predict
from cl_cnaps.commands.pretrain import pretrain
from cl_cnaps.commands.report import report
from cl_cnaps.commands.sweep import sweep
from cl_cnaps.commands.weights import weights
from cl_cnaps.errors import ClCnapsError, printable


class _Verbs(click.Group):
    """A group that prints every error as one line instead of a traceback."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Refuse empty arguments, which are variables of the shell that are not set: none means anything here."""
        for before, argument in zip(["", *args], args, strict=False):
            if not argument.strip() or (argument.startswith("--") and argument.endswith("=")):
                name = argument.rstrip("=").strip() or before or "the first"
                raise click.UsageError(
                    f"an argument is empty ({name}): is a variable of the shell not set?", context
                )
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ClCnapsError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:  # `cl-cnaps ... | head`
            sys.stderr.close()
            raise SystemExit(141) from None
        except (click.exceptions.Exit, click.exceptions.Abort, click.ClickException):
            raise
        except Exception as error:
            if context.params["debug"]:
                raise
            if isinstance(error, OSError) and error.filename is not None:
                line = f"{error.filename} cannot be written or read: {error.strerror}"
            else:
                from cl_cnaps.commands.crash import crash_line

                line = crash_line(error)
            raise click.ClickException(printable(line)) from error


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cl-cnaps")
@click.option("--debug", is_flag=True, help="Show the traceback of an error that nobody foresaw.")
def main(debug: bool) -> None:
    """Simple CNAPS and Transductive CNAPS on streams of tasks, few-shot episodes and in active learning."""


for _verb in (
    *COMMANDS.values(), learn, predict, sweep, metatrain, pretrain, plot, report, data, weights, bench,
):  # fmt: skip
    main.add_command(_verb)
