"""The command line: a table of commands, loaded when they are asked for, and what all of them share.

`distsort --help` imports neither dask nor pyarrow. Exit status: 0 done (or sorted), 1 not sorted, 2 trouble, 130
stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Iterator
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


def main() -> NoReturn:
    """Run the command line of this process; never returns."""
    with _terminated():
        status = run(sys.argv[1:])
    # All memory goes with the process: nothing is left to look for garbage in.
    gc.freeze()
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit status."""
    try:
        status = cli.main(arguments, prog_name="distsort", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _show_hints(error)
        return TROUBLE
    except (click.Abort, KeyboardInterrupt) as stopped:
        # Threads may still be busy with a block; nothing of theirs can be published any more.
        click.echo("stopped; nothing was written", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(143 if isinstance(stopped.__cause__ or stopped, Terminated) else 130)
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
def trouble(verbose: bool = False) -> Iterator[None]:
    """Turn the errors of a job into a message and exit status 2; with `verbose` the traceback is shown too."""
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
        text = f"{type(error).__name__}: {error} (-v shows where)"
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


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def _terminated() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that staged output goes."""

    def stop(signum: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def load(place: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def __getattr__(name: str) -> Any:
    # Dask's own command line finds `dask sort` here; it looks at every plugin at every start.
    if name == "sort":
        return load(COMMANDS["sort"][0])
    raise AttributeError(f"module 'distsort.cli' has no attribute {name!r}")
