"""`distsort bench`: its commands, each loaded when it is asked for."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "kernels": ("distsort.bench.kernels_command:kernels", "Sorts and merges on one GPU, from textbook to production."),
    "cluster": ("distsort.bench.cluster_command:cluster", "Sorts on a cluster, beside those of its other libraries."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group("bench", cls=_Lazy)
def bench() -> None:
    """Measure sorting, side by side with others."""
