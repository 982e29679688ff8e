"""Three hosts made of network namespaces; the link of one is cut and healed while its runs are pulled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cluster import netns

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def prefix():
    name = f"ds{os.getpid() % 100_000}-"
    try:
        with netns.hosts(name):
            yield name
    except (subprocess.CalledProcessError, FileNotFoundError, PermissionError) as error:
        said = getattr(error, "stderr", None) or error
        pytest.skip(f"network namespaces are not allowed here: {said}")


@pytest.mark.parametrize(("seconds", "timeout"), [(1.5, "30s"), (4.0, "1s")], ids=["waits", "asks again"])
def test_a_link_is_cut_and_healed(prefix, seconds, timeout):
    command = [
        "ip",
        "netns",
        "exec",
        f"{prefix}0",
        sys.executable,
        "-m",
        "tests.cluster.netns",
        prefix,
        str(seconds),
        timeout,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout.splitlines()[-1:] == ["right=True moved=True hosts=['10.77.0.2', '10.77.0.3']"], done.stderr[
        -4000:
    ]
