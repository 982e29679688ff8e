"""The service on a real scheduler with two real workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from distsort.errors import ServiceError
from tests.cluster.kit import hold, slow_down
from tests.cluster.service import PATIENCE, Cluster, free_ports, until, write_input
from tests.deploy.browser import browser

# One cluster for all: with xdist, all in one process.
pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("service")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def rows(home):
    return write_input(home / "data" / "in")


@pytest.fixture(scope="module")
def cluster(home, rows):
    made = Cluster(home)
    yield made
    made.close()


def get(cluster, path):
    with urllib.request.urlopen(f"{cluster.url}{path}", timeout=PATIENCE) as answer:
        return answer.read().decode()


@contextmanager
def held(cluster, id):
    """Start a job, hold it where some of its parts are there, but not all, and let it go at the end."""
    with cluster.connect() as client, hold(client, "make_part", after=1):
        cluster.submit(id)
        until(lambda: merging(cluster, id), f"{id} moves rows")
        yield


def merging(cluster, id):
    """Whether a job has made some of its parts, but not all."""
    job = cluster.sort.status(id)
    assert job["state"] in ("PENDING", "RUNNING"), job
    merged = [phase for phase in job["progress"] if phase["phase"] == "merge"]
    return job["state"] == "RUNNING" and merged and 0 < merged[0]["done"] < merged[0]["total"]


def test_submit_by_command_and_watch(cluster, rows):
    done = cluster.cli("submit", "in", "-o", "by-cli", "-k", "k", "-k", "s", "--id", "by-cli", "--exchange", "pull")
    assert done.returncode == 0, done.stderr + cluster.log("scheduler")
    assert f"sorted {len(rows):,} rows by k asc nulls last, s asc nulls last" in done.stdout
    shown = [line.split()[1:3] for line in done.stderr.splitlines()]
    assert all(state in ("PENDING", "RUNNING") for state, _ in shown), done.stderr
    assert "scan," in [phase for _, phase in shown]
    cluster.check("by-cli", rows)
    job = cluster.sort.status("by-cli")
    assert job["result"]["balance"] == 1.0
    assert {phase["phase"]: (phase["done"], phase["total"]) for phase in job["progress"]} == {
        "sort": (8, 8),
        "cuts": (9, 9),
        "merge": (8, 8),
        "write": (8, 8),
    }
    listed = cluster.cli("list", "--state", "SUCCEEDED")
    assert "by-cli" in listed.stdout
    logged = cluster.cli("logs", "by-cli", "-f")
    assert "attempt 1" in logged.stdout
    assert "checked  order, row count and checksum" in logged.stdout
    again = cluster.cli(
        "submit", "in", "-o", "by-cli", "-k", "k", "-k", "s", "--id", "by-cli", "--exchange", "pull", "--json"
    )
    assert json.loads(again.stdout) == job
    shown = cluster.cli("status", "by-cli").stdout
    assert "SUCCEEDED" in shown
    assert "8 of      8 tasks" in shown


def test_the_schedulers_own_routes_stay(cluster):
    assert get(cluster, "/health") == "ok"
    metrics = get(cluster, "/metrics")
    assert "dask_scheduler_workers" in metrics
    assert 'distsort_jobs{state="succeeded"}' in metrics
    assert "<title>Sort jobs</title>" in get(cluster, "/distsort")
    assert json.loads(get(cluster, "/distsort/v1/version"))["api"] == "v1"


def test_errors_reach_the_command_line(cluster, monkeypatch):
    wrong = cluster.cli("submit", "in", "-o", "wrong", "-k", "nosuch", "--id", "wrong")
    assert wrong.returncode == 2
    assert "FAILED in phase scan: key 'nosuch' is not a column" in wrong.stderr
    outside = cluster.cli("submit", "/etc", "-o", "wrong", "-k", "k")
    assert (outside.returncode, "outside the allowed roots" in outside.stderr) == (2, True)
    monkeypatch.setattr(
        cluster, "environment", lambda: {**Cluster.environment(cluster), "DISTSORT_TOKEN": "no-token-of-ours"}
    )
    strange = cluster.cli("stop", "wrong")
    assert (strange.returncode, "token is missing or wrong" in strange.stderr) == (2, True)


def test_a_link_out_of_the_roots(cluster, home):
    (home / "data" / "links").mkdir()
    (home / "data" / "links" / "secret.csv").symlink_to("/etc/passwd")
    cluster.sort.submit(str(home / "data" / "links"), str(home / "data" / "linked"), "k", submission_id="linked")
    job = cluster.sort.wait("linked", PATIENCE)
    assert (job["state"], job["attempt"]) == ("FAILED", 1)
    assert "leads outside the allowed roots" in job["reason"]
    assert cluster.nothing_of("linked_")


def test_events_spans_and_the_performance_report(cluster, rows):
    cluster.submit("observed", performance_report=True)
    assert cluster.sort.wait("observed", PATIENCE)["state"] == "SUCCEEDED"
    with cluster.connect() as client:
        events = [event for _, event in client.get_events("distsort-jobs") if event["job"] == "observed"]
        spans = client.run_on_scheduler(
            lambda dask_scheduler: sorted(
                span.name for span in dask_scheduler.extensions["spans"].spans.values() if "observed" in span.name
            )
        )
    assert [event["event"] for event in events] == ["queued", "running", "succeeded"]
    assert events[-1]["rows"] == len(rows)
    assert {name[-1] for name in spans if len(name) == 4} == {"sort", "cuts", "merge", "write"}
    assert all(name[:2] == ("distsort", "observed") for name in spans if len(name) > 1)
    assert "Dask Performance Report" in get(cluster, "/distsort/v1/jobs/observed/performance-report")


def test_stop_in_mid_exchange(cluster):
    with held(cluster, "stopped"):
        stopped = cluster.cli("stop", "stopped")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped STOPPED\n"), stopped.stderr
    job = cluster.sort.status("stopped")
    assert (job["reason"], job["phase"]) == ("stopped by a user", "merge")
    assert cluster.nothing_of("stopped")
    with cluster.connect() as client:
        until(lambda: not client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks), "no task is left")
        until(
            lambda: not any(client.run(lambda dask_worker: len(dask_worker.distsort_service.store)).values()),
            "no run is left",
        )
    assert cluster.nothing_of("stopped")


def test_a_killed_worker(cluster, rows):
    with held(cluster, "killed"):
        cluster.end(cluster.workers.pop(), signal.SIGKILL)
    job = cluster.sort.wait("killed", PATIENCE)
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 1), job
    cluster.check("killed", rows)
    cluster.workers.append(cluster.start_worker())
    until(cluster.ready, "two workers again")


def test_a_killed_job_process(cluster, rows):
    with held(cluster, "shot"):
        runner = ["-P", str(cluster.scheduler.pid), "-f", "distsort.service.runner"]
        subprocess.run(["pkill", "-KILL", *runner], check=True)
    job = cluster.sort.wait("shot", PATIENCE)
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 2), job
    cluster.check("shot", rows)
    assert not list(cluster.data.glob(".shot*"))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_the_page_in_a_browser(cluster, tmp_path):
    """A job is started, its progress is seen to move, at the width of a desktop and of a phone."""
    evil = "<img src=x onerror=alert(1)>"
    cluster.sort.submit(str(cluster.data / "in"), str(cluster.data / "evil"), evil, submission_id="evil")
    cluster.sort.wait("evil", PATIENCE)
    with browser() as page:
        page.size(1100, 900)
        page.open(f"{cluster.url}/distsort/")
        with cluster.connect() as client:
            slow_down(client, "make_part", 1)
        cluster.submit("watched")
        where = "(document.querySelector('details:has(.RUNNING) .where') || {}).textContent"
        moving = rf"/^(merge|write) \d of 8/.test({where})"
        page.until(moving)
        first = page.eval(where)
        page.until(f"{where} !== {json.dumps(first)} && {moving}")
        assert page.eval("document.querySelector('details:has(.RUNNING)').open"), "what runs is unfolded"
        bars = page.eval("document.querySelectorAll('details:has(.RUNNING) svg rect:not(.track)').length")
        assert bars >= 3
        assert float(page.eval("document.querySelector('details:has(.RUNNING) .total i').style.width").rstrip("%")) > 30
        page.shot(tmp_path / "desktop.png")
        page.size(390, 844, phone=True)
        page.until(f"{where} === undefined")
        card = "[...document.querySelectorAll('details')].find(d => d.querySelector('.id').textContent === 'watched')"
        assert page.eval(f"{card}.querySelector('.state').textContent") == "succeeded"
        assert "largest / mean 1.0000" in page.eval(f"{card}.innerText")
        phases = page.eval(f"[...{card}.querySelectorAll('svg text')].map(t => t.textContent)")
        assert {"scan", "read", "sort", "cuts", "merge", "write", "publish"} <= set(phases)
        page.eval(f"{card}.querySelector('button').click()")
        page.until(f"{card}.querySelector('pre').textContent.includes('checksum')")
        page.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.until(f"document.body.innerText.includes({json.dumps(evil)})")
        assert page.eval("document.images.length") == 0, "what users write is text"
        assert page.eval("document.documentElement.scrollWidth") <= 390, "nothing sticks out on a phone"
        page.shot(tmp_path / "phone.png")
        assert page.errors == []
        assert {url.split("?")[0] for url in page.requests if not url.startswith(cluster.url)} == set()
    assert min((tmp_path / name).stat().st_size for name in ("desktop.png", "phone.png")) > 20_000


def test_a_scheduler_that_is_killed_with_200_jobs_in_its_queue(cluster, rows):
    with held(cluster, "lost"):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: cluster.submit(f"queued-{i:03d}"), range(200)))
        assert cluster.sort.status("queued-199")["ahead"] == 199
        cluster.end(cluster.scheduler, signal.SIGKILL)
        for worker in cluster.workers:
            worker.kill()
            worker.wait(PATIENCE)
    cluster.start()
    job = cluster.sort.status("lost")
    assert (job["state"], job["reason"]) == (
        "FAILED",
        "lost: the scheduler was restarted while the job ran; submit it again",
    )
    active = cluster.sort.list("PENDING", 1000) + cluster.sort.list("RUNNING", 1000)
    kept = sorted(job["id"] for job in active + cluster.sort.list("SUCCEEDED", 1000) if job["id"].startswith("queued"))
    assert kept == [f"queued-{i:03d}" for i in range(200)]
    for i in range(2, 200):
        cluster.sort.stop(f"queued-{i:03d}")
    cluster.submit("lost")
    for id in ("queued-000", "queued-001", "lost"):
        assert cluster.sort.wait(id, PATIENCE)["state"] == "SUCCEEDED", cluster.sort.status(id)
        cluster.check(id, rows)
    assert cluster.sort.status("lost")["attempt"] == 2
    assert not list(cluster.data.glob(".*"))


def test_a_scheduler_that_is_shut_down(cluster):
    with held(cluster, "down"):
        assert cluster.end(cluster.scheduler) == 0
    record = json.loads((cluster.home / "jobs" / "down" / "job.json").read_text())
    assert record["state"] == "FAILED"
    assert record["reason"] == "lost: the scheduler was shut down while the job ran; submit it again"
    assert cluster.nothing_of("down")
    with pytest.raises(ServiceError, match="cannot be reached"):
        cluster.sort.ready()


def test_serve(home, rows, tmp_path):
    """`distsort serve`: scheduler, service and workers by one command, ended by SIGTERM."""
    port, http = free_ports(2)
    lone = Cluster.__new__(Cluster)
    lone.home, lone.data, lone.url, lone.settings = home, home / "data", f"http://127.0.0.1:{http}", {}
    command = [sys.executable, "-m", "distsort.cli", "serve", "--port", str(port), "--http-port", str(http)]
    options = ["--root", str(lone.data), "--directory", str(tmp_path / "jobs"), "--workers", "2"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, "--conf", "files.in-process=1 kiB"], env=lone.environment(), stdout=log, stderr=log
        )
    try:
        until(lambda: "scheduler  tcp://" in (tmp_path / "log").read_text(), "serve is up")
        done = lone.cli("submit", "in", "-o", "served", "-k", "k", "-k", "s", "-q")
        assert done.returncode == 0, done.stderr
        lone.check("served", rows)
        process.terminate()
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    finally:
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_serve_names_a_port_that_is_taken(option, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        ports = {"--port": "0", "--http-port": "0", option: str(number)}
        words = [word for pair in ports.items() for word in pair]
        done = subprocess.run(
            [sys.executable, "-m", "distsort.cli", "serve", "--directory", str(tmp_path), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 2
    told = f"error: {option} {number}: it cannot be listened on at 127.0.0.1 (Address already in use): choose another"
    assert done.stderr.startswith(told)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("service.token-file=/no/such", "token-file=/no/such: No such file"),
        ("service.roots=[relative]", "root 'relative': it must be an absolute path or a URL"),
        ("service.keep-for=much", "distsort.service.keep-for='much' is not a time"),
    ],
)
def test_serve_refuses_wrong_settings(setting, message, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "DISTSORT_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", "distsort.cli", "serve", "--directory", str(tmp_path), "--conf", setting],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("logs", "-f", "j"), "the log of j goes on where the job does"),
        (("stop", "j"), "job j was told to stop: 'distsort status j' shows whether it has"),
        (("status", "j"), "stopped"),
    ],
)
def test_ctrl_c_beside_a_job_says_what_becomes_of_it(command, told):
    """It ends the command, not the job."""
    code = """
import sys
from distsort.service import client
def hang(self, *arguments):
    raise KeyboardInterrupt
client.SortClient.stop = lambda self, id: {}
client.SortClient.wait = client.SortClient.follow = client.SortClient.status = hang
from distsort.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", told)
