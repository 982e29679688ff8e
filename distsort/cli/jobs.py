"""The commands about jobs: serve, submit, status, list, logs, stop, delete."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from distsort.cli import Trouble, trouble
from distsort.cli.files import split_columns
from distsort.cli.options import input_arguments, input_options
from distsort.service.client import SortClient
from distsort.service.view import SortJob

_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_COLOURS = {"SUCCEEDED": "green", "FAILED": "red", "STOPPED": "yellow", "RUNNING": "cyan"}


def _service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--url", metavar="URL", help="Of the service. [default: $DISTSORT_URL, else distsort.service.url]"
    )(command)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder or URL of the output.")
@input_options
@click.option("--overwrite", is_flag=True, help="Replace the output of an earlier run, once the new one is whole.")
@click.option("--npartitions", type=click.IntRange(min=1), help="Number of parts.")
@click.option("--columns", metavar="A,B,...", help="Keep only these columns, in this order.")
@click.option("--backend", type=click.Choice(["numpy", "cupy"]), help="Who sorts.")
@click.option("-m", "--merge", is_flag=True, help="Each input file is sorted already.")
@click.option("--exchange", type=click.Choice(["graph", "pull"]), help="How rows move.")
@click.option("--performance-report", is_flag=True, help="Keep Dask's performance report; the page of jobs links it.")
@click.option("--id", "submission_id", metavar="ID", help="Submission id: the same one again submits nothing twice.")
@click.option("--no-wait", is_flag=True, help="Print the id and leave.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@_service_options
def submit(
    inputs: tuple[str, ...],
    output: str,
    overwrite: bool,
    npartitions: int | None,
    columns: str | None,
    backend: str | None,
    merge: bool,
    exchange: str | None,
    performance_report: bool,
    submission_id: str | None,
    no_wait: bool,
    quiet: bool,
    url: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit a sort job to a service, and show its progress until it is done.

    Paths are those of the cluster; relative ones are taken from the current folder. The token is read from
    $DISTSORT_TOKEN. Exit status 0: it SUCCEEDED. 2: it FAILED or was STOPPED. Ctrl-C leaves the job running.

    \b
    distsort submit /data/in -o /data/out -k price:desc --id prices-2026-11
    """  # noqa: D301 (click takes the backspace as a mark)
    with trouble():
        given = input_arguments(**options)
        layout = given.pop("layout")
        client = SortClient(url)
        job = client.submit(
            [_absolute(path) for path in inputs],
            _absolute(output),
            **given,
            layout=None if layout is None else asdict(layout),
            presorted=merge,
            overwrite=overwrite,
            npartitions=npartitions,
            columns=split_columns(columns),
            backend=backend,
            exchange=exchange,
            submission_id=submission_id,
            performance_report=performance_report,
        )
        if no_wait:
            click.echo(json.dumps(job, indent=1) if as_json else job["id"])
            return
        try:
            job = _follow(client, job["id"], quiet or as_json)
        except KeyboardInterrupt:
            click.echo(f"job {job['id']} goes on: 'distsort stop {job['id']}' stops it", err=True)
            click.get_current_context().exit(130)
    if as_json:
        click.echo(json.dumps(job, indent=1))
    elif not quiet and job["state"] == "SUCCEEDED":
        click.echo(_result(job))
    if job["state"] != "SUCCEEDED":
        raise Trouble(f"job {job['id']} {job['state']} in phase {job['phase']}: {job['reason']}")


@click.command()
@click.argument("id")
@_service_options
def status(id: str, url: str | None, as_json: bool) -> None:
    """Show the state of a job."""
    with trouble():
        job = SortClient(url).status(id)
    if as_json:
        click.echo(json.dumps(job, indent=1))
        return
    click.echo(f"{job['id']}  {click.style(job['state'], fg=_COLOURS.get(job['state']))}  {job.where}")
    for phase in job["progress"]:
        click.echo(
            f"  {phase['phase']:<9} {phase['done']:>6,} of {phase['total']:>6,} tasks {phase['seconds']:>9.1f} s"
        )
    if job["state"] == "SUCCEEDED":
        click.echo(_result(job))
    elif job["reason"]:
        click.echo(f"reason   {job['reason']}")


@click.command(name="list")
@click.option("--state", type=click.Choice(["PENDING", "RUNNING", *_OVER]), help="Only these.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@_service_options
def list_jobs(state: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """List the jobs of a service, the last submitted first."""
    with trouble():
        jobs = SortClient(url).list(state, limit)
    if as_json:
        click.echo(json.dumps(jobs, indent=1))
        return
    if not jobs:
        click.echo("no jobs", err=True)
        return
    wide = max(len(job["id"]) for job in jobs)
    for job in jobs:
        submitted = time.strftime("%F %T", time.localtime(job["submitted"]))
        state_text = click.style(f"{job['state']:<9}", fg=_COLOURS.get(job["state"]))
        click.echo(f"{job['id']:<{wide}}  {state_text}  {submitted}  {job.where}")


@click.command()
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("--url", metavar="URL", help="Of the service.")
def logs(id: str, follow: bool, url: str | None) -> None:
    """Show the log of a job."""
    with trouble():
        client = SortClient(url)
        if follow:
            try:
                for text in client.follow(id):
                    click.echo(text, nl=False)
            except KeyboardInterrupt:
                click.echo(f"the log of {id} goes on where the job does", err=True)
                click.get_current_context().exit(130)
            return
        place = 0
        while (piece := client.logs(id, place))["text"]:
            click.echo(piece["text"], nl=False)
            place = piece["next"]


@click.command()
@click.argument("id")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@_service_options
def stop(id: str, no_wait: bool, url: str | None, as_json: bool) -> None:
    """Stop a job; of its output nothing is left."""
    with trouble():
        client = SortClient(url)
        job = client.stop(id)
        if not no_wait:
            try:
                job = client.wait(id)
            except KeyboardInterrupt:
                click.echo(f"job {id} was told to stop: 'distsort status {id}' shows whether it has", err=True)
                click.get_current_context().exit(130)
    click.echo(json.dumps(job, indent=1) if as_json else f"{job['id']} {job['state']}")


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--url", metavar="URL", help="Of the service.")
def delete(ids: tuple[str, ...], url: str | None) -> None:
    """Forget finished jobs and their logs; their output stays."""
    with trouble():
        client = SortClient(url)
        for id in ids:
            client.delete(id)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8786, show_default=True, help="Of the scheduler.")
@click.option("--http-port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="Of the service.")
@click.option("--root", "roots", multiple=True, metavar="DIR|URL", help="Jobs may read and write below it; repeatable.")
@click.option("--directory", metavar="DIR", help="Records and logs of jobs.")
@click.option("--token-file", metavar="FILE", help="Its first line lets its bearer write. [default: $DISTSORT_TOKEN]")
@click.option(
    "--workers", type=click.IntRange(min=0), metavar="N", help="Start N workers here. [default: one per core]"
)
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="Start a worker on each of N GPUs here.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Set a configuration value; repeatable.")
def serve(
    host: str,
    port: int,
    http_port: int,
    roots: tuple[str, ...],
    directory: str | None,
    token_file: str | None,
    workers: int | None,
    gpus: int | None,
    conf: tuple[str, ...],
) -> None:
    """Run a Dask scheduler that takes sort jobs over HTTP, with workers on this machine or elsewhere.

    Workers of other machines join with 'dask worker tcp://HOST:8786'. The page of jobs is at /distsort/.

    \b
    export DISTSORT_TOKEN=$(openssl rand -hex 16)
    distsort serve --root /data
    """  # noqa: D301 (click takes the backspace as a mark)
    with trouble():
        import dask

        from distsort import config
        from distsort.clusters import local_cluster
        from distsort.service.preload import NAME, check_settings
        from distsort.service.preload import directory as records_directory

        if workers is not None and gpus is not None:
            raise Trouble("--workers and --gpus: name one of them")
        given = {"roots": list(roots) or None, "directory": directory, "token-file": token_file}
        settings: dict[str, Any] = config.parse_settings(conf)
        settings.update({f"distsort.service.{name}": value for name, value in given.items() if value is not None})
        _check_free("--port", host, port)
        _check_free("--http-port", host, http_port)
        # For the processes of workers and jobs too, which take over what is set here.
        dask.config.set(settings)
        check_settings()
        # Said now: the cluster has a temporary folder of its own, which goes with it, and records stay.
        dask.config.set({"distsort.service.directory": str(records_directory())})
        preloads = [*dask.config.get("distributed.scheduler.preload"), "distsort.service"]
        with (
            dask.config.set({"distributed.scheduler.preload": preloads}),
            local_cluster(
                workers,
                gpus,
                log_failures=True,
                host=host,
                scheduler_port=port,
                dashboard_address=f"{host}:{http_port}",
            ) as client,
        ):
            cluster = client.cluster
            if NAME not in cluster.scheduler.extensions:
                raise Trouble("the service did not start: the log above says why")
            http = cluster.scheduler.http_server.port
            click.echo(f"jobs       http://{host}:{http}/distsort/\nscheduler  {cluster.scheduler_address}")
            sys.stdout.flush()
            try:
                while cluster.status.name == "running":
                    time.sleep(0.2)
            except KeyboardInterrupt:
                click.echo("shutting down", err=True)


def _check_free(option: str, host: str, port: int) -> None:
    """Refuse a port that another process listens on: Dask names none, or takes any other for HTTP."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            raise Trouble(
                f"{option} {port}: it cannot be listened on at {host} ({error.strerror}): choose another port, "
                "or 0 for any that is free"
            ) from error


def _follow(client: SortClient, id: str, quiet: bool) -> SortJob:
    """Show a job's progress until it is over: one line that is redrawn on a terminal, else a line for each change."""
    terminal = sys.stderr.isatty()
    shown = ""
    job = SortJob()
    for job in client.watch(id):
        text = f"{job['id']}  {job['state']}  {job.where}"
        change = text if terminal else f"{job['state']} {job['phase']}"
        if not quiet and change != shown and job["state"] not in _OVER:
            click.echo(f"\r\033[K{text}" if terminal else text, nl=not terminal, err=True)
            shown = change
    if terminal and shown:
        click.echo("\r\033[K", nl=False, err=True)
    return job


def _result(job: dict[str, Any]) -> str:
    result = job["result"]
    return (
        f"sorted {result['rows']:,} rows by {result['order']} in {result['seconds']:.1f} s\n"
        f"output   {result['output']}: {result['parts']} parts, largest / mean {result['balance']:.4f}\n"
        f"checked  order, row count and checksum {result['checksum']}"
    )


def _absolute(path: str) -> str:
    """Return a path as the service needs it; URLs as they are."""
    return path if "://" in path else os.path.abspath(Path(path).expanduser())  # noqa: PTH100
