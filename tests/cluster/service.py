"""A scheduler with the service and its workers, each a process of its own on loopback, to be killed at will."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client

from distsort.service.client import SortClient

PATIENCE = 90
TOKEN = "a-token-for-tests"
ROWS = 20_000
FILES = 8


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def until(condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """Wait for something to become true."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"still not so after {timeout} s: {what}"
        time.sleep(0.05)
    return found


class Cluster:
    """Processes: ``dask scheduler --preload distsort.service`` and workers without nannies."""

    def __init__(self, home: Path, workers: int = 2, **settings: Any) -> None:
        self.home = home
        self.data = home / "data"
        self.port, self.http = free_ports(2)
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.url = f"http://127.0.0.1:{self.http}"
        self.sort = SortClient(self.url, TOKEN)
        self.logs = home / "logs"
        self.logs.mkdir(parents=True)
        self.settings = {
            "SERVICE__ROOTS": f"['{self.data}']",
            "SERVICE__DIRECTORY": str(home / "jobs"),
            "FILES__IN_PROCESS": "1 kiB",
            **settings,
        }
        self.count = workers
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def environment(self) -> dict[str, str]:
        """Return the environment of every process."""
        ours = {f"DASK_DISTSORT__{name}": str(value) for name, value in self.settings.items()}
        comm = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s"}
        return {
            **os.environ,
            **ours,
            **comm,
            "DISTSORT_TOKEN": TOKEN,
            "DISTSORT_URL": self.url,
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that logs to a file."""
        with (self.logs / name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], env=self.environment(), stdout=log, stderr=log, cwd=self.home
            )
        self.processes.append(process)
        return process

    def start(self) -> None:
        """Start the scheduler, again if there was one, and new workers."""
        listen = ["--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", f"127.0.0.1:{self.http}"]
        self.scheduler = self.run(
            "scheduler", ["distributed.cli.dask_scheduler", *listen, "--preload", "distsort.service"]
        )
        self.workers = [self.start_worker() for _ in range(self.count)]
        until(self.ready, f"two workers\n{self.log('scheduler')}")

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--memory-limit", "2GiB", "--death-timeout", "60"]
        place = ["--host", "127.0.0.1", "--local-directory", str(self.home / "scratch")]
        return self.run("worker", ["distributed.cli.dask_worker", self.address, *options, *place])

    def ready(self) -> bool:
        """Whether the service answers and all workers are there."""
        with suppress(Exception):
            return bool(self.sort.ready()["workers"] == self.count)
        return False

    def connect(self) -> Client:
        """Return a client of the scheduler itself."""
        return Client(self.address, set_as_default=False, timeout="30s")

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to a process and wait for its end."""
        process.send_signal(how)
        return process.wait(PATIENCE)

    def close(self) -> None:
        """End everything."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, name: str) -> str:
        """Return the end of a log."""
        return (self.logs / name).read_text(errors="replace")[-4000:]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would."""
        return subprocess.run(
            [sys.executable, "-m", "distsort.cli", *arguments],
            env=self.environment(),
            cwd=self.data,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    def submit(self, id: str, **options: Any) -> dict[str, Any]:
        """Submit a sort of the input to a folder named after the job."""
        return self.sort.submit(
            str(self.data / "in"), str(self.data / id), ["k", "s"], submission_id=id, exchange="pull", **options
        )

    def check(self, name: str, rows: pd.DataFrame) -> None:
        """Check an output by the command line, and by pandas."""
        done = self.cli("check", name, "-k", "k", "-k", "s", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["sorted"], said["rows"]) == (True, len(rows))
        expected = rows.sort_values(["k", "s"], kind="stable", ignore_index=True)
        pd.testing.assert_frame_equal(pd.read_parquet(self.data / name), expected)

    def nothing_of(self, name: str) -> bool:
        """Whether neither an output nor anything staged for it is there."""
        return not [path.name for path in self.data.iterdir() if name in path.name]


def write_input(folder: Path) -> pd.DataFrame:
    """Write files to sort, and return all their rows."""
    folder.mkdir(parents=True)
    frames = []
    for i in range(FILES):
        random = np.random.default_rng(i)
        keys = random.integers(0, 500, ROWS)
        frames.append(pd.DataFrame({"k": keys, "s": [f"s{k % 7}" for k in keys], "v": np.arange(ROWS) + i * ROWS}))
        frames[-1].to_parquet(folder / f"{i}.parquet")
    return pd.concat(frames, ignore_index=True)
