"""`distsort info`: what is installed, what is there to sort on, and how it is set."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
from pathlib import Path
from typing import Any

import click

from distsort import __version__
from distsort.cli import trouble

_PACKAGES = ("dask", "distributed", "numpy", "pandas", "pyarrow", "fsspec", "cupy", "dask-cuda", "cudf", "polars")


@click.command(name="info")
@click.option("--scheduler", metavar="ADDRESS", help="Look at this Dask scheduler too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def info(scheduler: str | None, as_json: bool) -> None:
    """Show versions, devices, caches, settings and schedulers."""
    with trouble():
        found = collect(scheduler)
    if as_json:
        click.echo(json.dumps(found, indent=1, default=str))
        return
    for title, entries in found.items():
        click.echo(click.style(title, bold=True))
        width = max((len(name) for name in entries), default=0)
        for name, value in entries.items():
            click.echo(f"  {name:<{width}}  {value}")


def collect(scheduler: str | None = None) -> dict[str, dict[str, Any]]:
    """Return sections of names and values."""
    import dask

    from distsort import config

    # Settings as they are, also those that a sort would refuse: this is where people look for them.
    return {
        "versions": versions(),
        "machine": machine(),
        "devices": devices(),
        "caches": caches(),
        "schedulers": schedulers(scheduler),
        "settings": {path: dask.config.get(f"distsort.{path}") for path in config.keys()},  # noqa: SIM118
    }


def versions() -> dict[str, str]:
    """Return what is installed of what distsort can use."""
    found = {"distsort": __version__, "python": platform.python_version()}
    names = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    for package in _PACKAGES:
        # cupy and cudf are published under a name for each CUDA version.
        match = next((n for n in sorted(names) if n == package or n.startswith(f"{package}-cu")), None)
        found[package] = "not installed" if match is None else names[match]
    return found


def machine() -> dict[str, str]:
    """Return cores and memory of this host."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    from distsort.report import bytes_text

    return {"system": platform.platform(), "cores": str(CPU_COUNT), "memory": bytes_text(MEMORY_LIMIT)}


def devices() -> dict[str, str]:
    """Return the GPUs that cupy sees, or why there are none."""
    if importlib.util.find_spec("cupy") is None:
        return {"none": "cupy is not installed: everything runs on numpy"}
    try:
        import cupy

        from distsort.report import bytes_text

        found = {}
        for number in range(cupy.cuda.runtime.getDeviceCount()):
            about = cupy.cuda.runtime.getDeviceProperties(number)
            found[f"gpu {number}"] = (
                f"{about['name'].decode()}, sm_{about['major']}{about['minor']}, {bytes_text(about['totalGlobalMem'])}"
            )
        return found or {"none": "cupy sees no GPU: everything runs on numpy"}
    except Exception as error:
        return {"none": f"cupy cannot use a GPU here ({error}): everything runs on numpy"}


def caches() -> dict[str, str]:
    """Return where compiled kernels are kept and how large that is."""
    from distsort.report import bytes_text

    folder = Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {"kernels": f"{folder}: {len(sizes)} files, {bytes_text(sum(sizes))}"}


def schedulers(address: str | None) -> dict[str, str]:
    """Return where jobs run: the given scheduler, the configured one, or this machine."""
    import dask

    from distsort import config
    from distsort.report import bytes_text

    limit = bytes_text(config.get_bytes("files.in-process"))
    found = {"default": f"threads of one process up to {limit}, above that a cluster of this machine"}
    address = address or dask.config.get("scheduler-address", None)
    if address:
        from distsort.clusters import connect
        from distsort.needs import identity

        with connect(address=address, timeout="5s") as client:
            workers = identity(client)["workers"].values()
            memory = sum(worker["memory_limit"] or 0 for worker in workers)
            threads = sum(worker["nthreads"] for worker in workers)
            found[address] = f"{len(workers)} workers, {threads} threads, {bytes_text(memory)}"
    return found
