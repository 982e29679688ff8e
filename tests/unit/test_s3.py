"""An object store: an S3 server on loopback. Its packages, moto and s3fs, are optional."""

from __future__ import annotations

import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distsort.errors import OptionError, OutputError
from distsort.files import check_files, sort_files

PART = ["out/part-00000.parquet"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def bucket(monkeypatch):
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir("bucket")
    with fs.open("bucket/in/a.parquet", "wb") as file:
        pq.write_table(pa.table({"k": list(range(240))[::-1]}), file, row_group_size=20)
    yield fs
    fs.rm("bucket", recursive=True)
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()


def names(fs, folder):
    fs.invalidate_cache()
    return sorted(path[len(folder) + 1 :] for path in fs.find(folder))


def test_a_bucket_is_sorted_into_a_bucket(bucket):
    report = sort_files("s3://bucket/in", "s3://bucket/out", "k")
    parts = [f"part-{number:05d}.parquet" for number in range(12)]
    assert report.output == "s3://bucket/out"
    assert names(bucket, "bucket/out") == ["_SUCCESS", "_manifest.json", *parts]
    assert bool(check_files("s3://bucket/out", "k"))
    with pytest.raises(OutputError, match="s3://bucket/out"):
        sort_files("s3://bucket/in", "s3://bucket/out", "k")
    sort_files("s3://bucket/in/*.parquet", "s3://bucket/out", "k", ascending=False, overwrite=True, npartitions=3)
    assert names(bucket, "bucket") == [
        "in/a.parquet",
        "out/_SUCCESS",
        "out/_manifest.json",
        *(f"out/{part}" for part in parts[:3]),
    ]
    assert bool(check_files("s3://bucket/out", "k", ascending=False))
    with pytest.raises(OptionError, match="the input itself"):
        sort_files("s3://bucket/in", "s3://bucket/in", "k", overwrite=True)


KILLED = """
import os, signal, sys
from distsort.io.commit import Stage
from distsort.files import sort_files

def half_way(self, *args):
    self.store.write(self.path("part-99999.parquet"), b"half")
    print(self.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Stage.publish = half_way
sort_files("s3://bucket/in", "s3://bucket/out", "k")
"""


def test_what_a_killed_job_left_in_a_bucket_the_next_one_removes(bucket):
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = killed.stdout.strip().removeprefix("bucket/")
    assert {f"{folder}.lease", f"{folder}/part-99999.parquet"} < set(names(bucket, "bucket"))
    sort_files("s3://bucket/in", "s3://bucket/out", "k", npartitions=1)
    assert names(bucket, "bucket") == ["in/a.parquet", *(f"out/{n}" for n in ("_SUCCESS", "_manifest.json")), *PART]
