"""Hosts on one machine: network namespaces on a bridge, and a link to each that can be cut and healed.

    namespace 0 (scheduler, client)          namespace 1 (worker)      namespace 2 (worker)
        bridge 10.77.0.1 ---- port1 ======= eth0 10.77.0.2
                         \\--- port2 ================================== eth0 10.77.0.3

Run inside namespace 0 as ``python -m tests.cluster.netns PREFIX SECONDS TIMEOUT``: starts the workers in the other two,
sorts, cuts the link of one for some seconds while parts are pulled, and says what came of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

HOSTS = 3


def ip(*words: str, namespace: str | None = None) -> None:
    """Run iproute2."""
    where = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *where, *words], check=True, capture_output=True, text=True, timeout=20)


@contextmanager
def hosts(prefix: str) -> Iterator[list[str]]:
    """Make namespaces joined by veth; yields their names.

    Raises
    ------
    CalledProcessError, FileNotFoundError
        Namespaces are not allowed here, or there is no iproute2.
    """
    names = [f"{prefix}{i}" for i in range(HOSTS)]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
            ip("link", "set", "lo", "up", namespace=name)
        ip("link", "add", "bridge", "type", "bridge", namespace=names[0])
        ip("addr", "add", "10.77.0.1/24", "dev", "bridge", namespace=names[0])
        ip("link", "set", "bridge", "up", namespace=names[0])
        for i, name in enumerate(names[1:], 1):
            ip("link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name, namespace=names[0])
            ip("link", "set", f"port{i}", "master", "bridge", "up", namespace=names[0])
            ip("addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0", namespace=name)
            ip("link", "set", "eth0", "up", namespace=name)
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


def main(prefix: str, seconds: float, timeout: str) -> None:
    """Sort over three hosts while one link is away."""
    import dask
    import numpy as np
    from distributed import Client, LocalCluster

    from tests.cluster import kit

    config = {**kit.CONFIG, "distsort.pull.timeout": timeout, "distsort.pull.retries": 50}
    workers: list[subprocess.Popen[bytes]] = []
    with (
        dask.config.set(config),
        LocalCluster(n_workers=0, host="10.77.0.1", dashboard_address=":0", protocol="tcp") as cluster,
        Client(cluster) as client,
    ):
        try:
            for i in (1, 2):
                command = ["ip", "netns", "exec", f"{prefix}{i}", sys.executable, "-m", "distributed.cli.dask_worker"]
                options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", f"10.77.0.{i + 1}"]
                workers.append(subprocess.Popen([*command, cluster.scheduler_address, *options]))
            client.wait_for_workers(2, timeout=kit.PATIENCE)
            lazy, source = kit.array(8, 200_000)
            kit.slow_down(client, "make_part", 0.1)
            result = kit.start(kit.sort(lazy, npartitions=16))
            kit.until(lambda: (b := kit.barrier_of(client)) is not None and b.state == "memory")
            ip("link", "set", "port2", "down")
            time.sleep(seconds)
            ip("link", "set", "port2", "up")
            right = bool((kit.finish(result) == np.sort(source)).all())
            moved = sum(
                w["pulled"] for w in client.run(lambda dask_worker: dask_worker.distsort_service.report()).values()
            )
            del result
            kit.assert_clean(client)
            hosts_used = {address.split("://")[1].split(":")[0] for address in kit.worker_pids(client)}
            print(f"right={right} moved={moved > source.nbytes // 4} hosts={sorted(hosts_used)}")
        finally:
            for worker in workers:
                worker.kill()
                worker.wait(20)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
