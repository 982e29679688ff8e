"""The command line: a table of commands, loaded when they are asked for, and what all of them share.

`distsort --help` imports neither dask nor pyarrow. Exit status: 0 done (or sorted), 1 not sorted, 2 trouble, 130
stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP (the terminal was closed).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from distsort import __version__
from distsort.errors import DistsortError

TROUBLE = 2

# Each command with the place of its click command and what --help says of it. A module that is not installed or does
# not exist takes its commands out of the list.
COMMANDS: dict[str, tuple[str, str]] = {
    "sort": ("distsort.cli.files:sort", "Sort files into a folder of parts."),
    "merge": ("distsort.cli.files:merge", "Merge files each of which is sorted already."),
    "check": ("distsort.cli.files:check", "Say whether files are sorted."),
    "plan": ("distsort.cli.plan:plan", "Say what a sort would do."),
    "generate": ("distsort.cli.plan:generate", "Write a file of rows to sort."),
    "info": ("distsort.cli.info:info", "Show versions, devices, caches, settings and schedulers."),
    "bench": ("distsort.bench.commands:bench", "Measure sorting, side by side with others."),
    "serve": ("distsort.cli.jobs:serve", "Run a scheduler that takes sort jobs over HTTP."),
    "submit": ("distsort.cli.jobs:submit", "Submit a sort job to a service."),
    "status": ("distsort.cli.jobs:status", "Show the state of a job."),
    "list": ("distsort.cli.jobs:list_jobs", "List the jobs of a service."),
    "logs": ("distsort.cli.jobs:logs", "Show the log of a job."),
    "stop": ("distsort.cli.jobs:stop", "Stop a job."),
    "delete": ("distsort.cli.jobs:delete", "Forget a finished job."),
}


WRITE = ("sort", "merge", "generate")
"""Commands whose output appears whole or not at all."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands that can be loaded, in the order of the table."""
        return [name for name, (place, _) in COMMANDS.items() if _exists(place.partition(":")[0])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = load(COMMANDS[cmd_name][0])
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of --help from the table, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command, naming what comes close."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="distsort")
def cli() -> None:
    """Sort files, Dask arrays and dataframes: exact, stable, perfectly balanced.

    \b
    distsort sort in.parquet -o sorted/ -k price:desc -k name
    distsort check sorted/ -k price:desc -k name
    """  # noqa: D301 (click takes the backspace as a mark)


def main(arguments: Sequence[str] | None = None, program: str = "distsort") -> NoReturn:
    """Run a command line, that of this process by default; never returns."""
    with _ended():
        status = run(sys.argv[1:] if arguments is None else arguments, program)
    # All memory goes with the process: nothing is left to look for garbage in.
    gc.freeze()
    sys.exit(status)


def run(arguments: Sequence[str], program: str = "distsort") -> int:
    """Run a command line and return its exit status."""
    try:
        status = cli.main(list(arguments), prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _show_hints(error)
        return TROUBLE
    except (click.Abort, KeyboardInterrupt) as stopped:
        # Threads may still be busy with a block; nothing of theirs can be published any more.
        click.echo("stopped; nothing was written" if arguments[:1] and arguments[0] in WRITE else "stopped", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        cause = stopped.__cause__ or stopped
        os._exit(128 + (cause.number if isinstance(cause, Ended) else signal.SIGINT))
    except BrokenPipeError:
        # The reader of our output has gone, as in `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return TROUBLE
    return int(status or 0)


@contextmanager
def importing() -> Iterator[None]:
    """Import many modules without looking for garbage among them, where there is none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def trouble(verbose: bool | None = None) -> Iterator[None]:
    """Turn the errors of a job into a message and exit status 2.

    Parameters
    ----------
    verbose
        Whether the traceback is shown too; None for a command without ``-v``.
    """
    try:
        yield
    except DistsortError as error:
        if verbose:
            traceback.print_exc()
        raise Trouble(str(error), error) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:  # of a library, of a disk, of a network: whatever it is, people get one line
        if verbose:
            traceback.print_exc()
        text = f"{type(error).__name__}: {error}{'' if verbose is None else ' (-v shows where)'}"
        raise Trouble(text, error) from error


def _show_hints(error: click.ClickException) -> None:
    """Print what was likely done wrong: lines on stderr, or under --json an object on stdout."""
    from distsort.cli.hints import hints

    cause = getattr(error, "cause", None) or error
    found = hints(cause, error.format_message())
    context = getattr(error, "context", None)
    if context is not None and context.params.get("as_json"):
        import json

        kind = type(cause).__name__
        click.echo(json.dumps({"error": error.format_message(), "kind": kind, "hints": found}, indent=1))
        return
    if found:
        click.echo("likely:", err=True)
    for hint in found:
        click.echo(f"  - {hint}", err=True)


class Trouble(click.ClickException):
    """A message for people; exit status 2.

    Parameters
    ----------
    message
        What is shown.
    cause
        The error behind it, which tells what was likely done wrong.
    """

    exit_code = TROUBLE

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.context = click.get_current_context(silent=True)

    def show(self, file: Any = None) -> None:
        """Print the message."""
        click.echo(click.style("error: ", fg="red", bold=True) + self.message, file=file, err=True)


class Ended(KeyboardInterrupt):
    """A signal came that ends processes."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def _ended() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that staged output goes; ``nohup`` holds."""
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def end(number: int, frame: Any) -> None:
        if number == signal.SIGHUP:  # to write to a terminal that was closed is an error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for fd in terminals:
                os.dup2(nowhere, fd)
        raise Ended(number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def load(place: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@click.command(
    name="sort",
    help=COMMANDS["sort"][1],
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sort(arguments: tuple[str, ...]) -> NoReturn:
    """Run ``dask sort``, which is ``distsort sort``: its signals, messages and exit status."""
    main(["sort", *arguments], "dask")
