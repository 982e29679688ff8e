"""The service over HTTP, with a stand-in for the sort."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml
from prometheus_client import REGISTRY, generate_latest

import distsort.service.http as http
from distsort.errors import ServiceError
from distsort.service.client import SortClient
from distsort.service.jobs import Limits
from distsort.service.metrics import Collector
from tests.deploy.conftest import PATIENCE, TOKEN

GOOD = {"src": "/data/in", "dst": "/data/out/fine", "by": "k"}
ALLOWED = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def ask(url, method="GET", body=None, headers=None):
    """Return status, headers and body, whatever the status is."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read()
        said = json.loads(text) if answer.headers.get("Content-Type") == "application/json" else text.decode()
        return answer.status, answer.headers, said


def refused(call, status):
    with pytest.raises(ServiceError) as caught:
        call()
    assert caught.value.status == status
    return str(caught.value)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_a_job_from_submission_to_deletion(served):
    client = served.client
    assert client.ready() == {"ready": True, "read_only": False, "workers": 1, "threads": 2}
    status, headers, job = ask(f"{served.url}/distsort/v1/jobs", "POST", {**GOOD, "submission_id": "first"}, ALLOWED)
    assert (status, headers["Location"]) == (201, "jobs/first")
    assert job["state"] == "RUNNING"
    done = client.wait("first", PATIENCE)
    assert (done["state"], done["attempt"], done["phase"]) == ("SUCCEEDED", 1, "done")
    assert done["result"]["rows"] == 6
    assert done["spec"] == {
        "src": ["/data/in"],
        "dst": "/data/out/fine",
        "by": ["k"],
        "ascending": True,
        "na_position": "last",
        "overwrite": False,
        "presorted": False,
        "performance_report": False,
    }
    assert client.list() == [done]
    assert client.list("FAILED") == []
    assert "".join(client.follow("first")) == "attempt 1 of first: fine ä€\n"
    status, _, again = ask(f"{served.url}/distsort/v1/jobs", "POST", {**GOOD, "submission_id": "first"}, ALLOWED)
    assert (status, again) == (200, done)
    client.delete("first")
    assert refused(lambda: client.status("first"), 404) == "there is no job 'first': see the list of jobs"
    assert client.list() == []
    topics = {topic for topic, _ in served.scheduler.events}
    events = [event["event"] for _, event in served.scheduler.events]
    assert topics == {"distsort-jobs"}
    assert events == ["queued", "running", "succeeded", "deleted"]


def test_the_token_stays_with_the_scheduler(served, monkeypatch):
    monkeypatch.setenv("DISTSORT_TOKEN", TOKEN)
    served.submit("fine", "a")
    names = served.client.wait("a", PATIENCE)["result"]["environment"]
    assert "DISTSORT_TOKEN" not in names
    assert "DASK_INTERNAL_INHERIT_CONFIG" in names


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": "Bearer t\xf6ken"}, 401),
        ({"Authorization": f"bearer  {TOKEN} ", "Content-Type": "text/plain"}, 415),
    ],
)
def test_writing_needs_the_token(served, headers, status):
    served.submit("sleep", "mine")
    for method, path in (("POST", "jobs"), ("POST", "jobs/mine/stop"), ("DELETE", "jobs/mine")):
        if status == 401 or path == "jobs":
            found, answer, said = ask(f"{served.url}/distsort/v1/{path}", method, b"{}", headers)
            assert found == status, said
            assert (answer["WWW-Authenticate"] is not None) == (status == 401)
            assert TOKEN not in json.dumps(said)
    assert served.client.status("mine")["state"] == "RUNNING"


def test_without_a_token_nothing_is_written(serve):
    with serve(token=None) as served:
        assert served.client.ready()["read_only"]
        assert "read-only" in refused(lambda: served.submit("fine", "a"), 403)
        assert served.client.list() == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"src": "/data/in",}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "'src' is missing"),
        (json.dumps({**GOOD, "by": None}).encode(), "by=None"),
        (json.dumps({**GOOD, "submission_id": 7}).encode(), "submission_id=7"),
        (json.dumps({**GOOD, "submission_id": "../../etc"}).encode(), "submission_id"),
        (json.dumps({**GOOD, "submission_id": ""}).encode(), "submission_id=''"),
        (json.dumps({**GOOD, "src": "data/in"}).encode(), "absolute path"),
        (json.dumps({**GOOD, "ascendign": True}).encode(), "did you mean ascending"),
    ],
)
def test_bad_requests_say_what_is_wrong(served, body, message):
    status, _, said = ask(f"{served.url}/distsort/v1/jobs", "POST", body, ALLOWED)
    assert status == 400
    assert message in said["error"]
    assert served.client.list() == []


@pytest.mark.parametrize("field", ["src", "dst"])
@pytest.mark.parametrize("place", ["/etc", "/data2/x", "s3://bucketeer/x", "gs://bucket/x"])
def test_paths_outside_the_roots(served, field, place):
    status, _, said = ask(f"{served.url}/distsort/v1/jobs", "POST", {**GOOD, field: place}, ALLOWED)
    assert status == 403
    assert f"{field}='{place}' is outside the allowed roots (/data, s3://bucket)" in said["error"]


def test_large_bodies_are_not_kept(served):
    huge = b'{"src": "' + b"x" * http.LARGEST_BODY + b'"}'
    status, _, said = ask(f"{served.url}/distsort/v1/jobs", "POST", huge, ALLOWED)
    assert status == 413
    assert "bytes" in said["error"]
    chunks = iter([huge[i : i + 65536] for i in range(0, len(huge), 65536)])
    request = urllib.request.Request(
        f"{served.url}/distsort/v1/jobs", chunks, {**ALLOWED, "Transfer-Encoding": "chunked"}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=PATIENCE)
    assert caught.value.code == 413
    caught.value.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "nothing", 404, "no such route"),
        ("GET", "", 404, "no such route"),
        ("PUT", "jobs", 405, "use GET or POST"),
        ("POST", "ready", 405, "use GET"),
        ("GET", "jobs/none", 404, "no job 'none'"),
        ("GET", "jobs/%2e%2e", 404, "no job"),
        ("GET", "jobs/none/logs", 404, "no job"),
        ("GET", "jobs/none/performance-report", 404, "no job"),
        ("GET", "jobs?limit=0", 400, "limit='0'"),
        ("GET", "jobs?limit=many", 400, "limit='many'"),
        ("GET", "jobs?limit=%D9%A3", 400, "whole number"),
        ("GET", "jobs?state=running", 400, "one of PENDING"),
        ("GET", "jobs?state=%ff", 400, "UTF-8"),
    ],
)
def test_errors_are_json(served, method, path, status, message):
    found, headers, said = ask(f"{served.url}/distsort/v1/{path}", method, None, {})
    assert (found, headers["Content-Type"]) == (status, "application/json")
    assert message in said["error"] or status == 400
    assert (headers["Allow"] is not None) == (status == 405)


def test_a_fault_of_ours_is_logged_and_not_shown(served, monkeypatch, caplog):
    monkeypatch.setattr(served.manager, "view", lambda job: 1 / 0)
    served.manager.records.save  # noqa: B018
    status, _, said = ask(f"{served.url}/distsort/v1/jobs", "POST", GOOD, ALLOWED)
    assert (status, said) == (500, {"error": "the service failed; its log says why"})
    assert "ZeroDivisionError" in caplog.text


def test_attempts(serve):
    with serve(limits=Limits(running=4, attempts=2)) as served:
        for what in ("once", "twice", "wrong", "killed", "silent"):
            served.submit(what, what)
        done = {what: served.client.wait(what, PATIENCE) for what in ("once", "twice", "wrong", "killed", "silent")}
    ends = {what: (job["state"], job["attempt"], job["reason"]) for what, job in done.items()}
    assert ends == {
        "once": ("SUCCEEDED", 2, None),
        "twice": ("FAILED", 2, "a worker was lost"),
        "wrong": ("FAILED", 1, "the column is missing"),
        "killed": ("FAILED", 2, "its process was ended by SIGKILL: perhaps its host ran out of memory"),
        "silent": ("FAILED", 2, "its process ended with status 3 and gave no answer; see its log"),
    }


def test_a_failed_job_is_submitted_again_under_its_id(served):
    served.submit("once", "a")
    served.submit("twice", "b")
    assert served.client.wait("b", PATIENCE)["state"] == "FAILED"
    again = served.submit("twice", "b")
    assert again["state"] in ("PENDING", "RUNNING")
    assert served.client.wait("b", PATIENCE)["attempt"] == 4


def test_stop(serve):
    with serve(stop_timeout=0.5) as served:
        client = served.client
        served.submit("sleep", "runs")
        served.submit("sleep", "waits")
        assert client.status("waits")["ahead"] == 0
        assert (client.stop("waits")["state"], client.status("waits")["reason"]) == ("STOPPED", "stopped before it ran")
        refused(lambda: client.delete("runs"), 409)
        until(lambda: client.logs("runs")["text"])
        assert client.stop("runs")["phase"] == "stopping"
        stopped = client.wait("runs", PATIENCE)
        assert (stopped["state"], stopped["reason"], stopped["attempt"]) == ("STOPPED", "stopped by a user", 1)
        assert client.stop("runs") == stopped, "a stop of what is over changes nothing"
        served.submit("deaf", "deaf")
        until(lambda: "deaf\n" in client.logs("deaf")["text"])
        client.stop("deaf")
        assert client.wait("deaf", PATIENCE)["state"] == "STOPPED", "SIGKILL follows SIGTERM"


def test_a_stop_right_after_the_start(served):
    for i in range(5):
        served.submit("sleep", f"a{i}")
        served.client.stop(f"a{i}")
        assert served.client.wait(f"a{i}", PATIENCE)["state"] == "STOPPED"


def test_two_hundred_jobs_run_in_turn(serve):
    with serve(limits=Limits(running=2, queued=200)) as served:
        served.submit("sleep", "block-1")
        served.submit("sleep", "block-2")
        threads = [
            threading.Thread(target=lambda k=k: [served.submit("fine", f"j{i:03d}") for i in range(k, 200, 4)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert "200 jobs are waiting already" in refused(lambda: served.submit("fine", "over"), 429)
        status, headers, _ = ask(f"{served.url}/distsort/v1/jobs", "POST", {**GOOD, "submission_id": "over"}, ALLOWED)
        assert (status, headers["Retry-After"]) == (429, "30")
        listed = served.client.list("PENDING", limit=1000)
        assert sorted(job["ahead"] for job in listed) == list(range(200))
        served.client.stop("block-1")
        served.client.stop("block-2")
        until(lambda: len(served.client.list("SUCCEEDED", limit=1000)) == 200)
        jobs = served.client.list("SUCCEEDED", limit=1000)
    started = [job["id"] for job in sorted(jobs, key=lambda job: job["started"])]
    assert started == [job["id"] for job in sorted(jobs, key=lambda job: job["number"])]


def test_two_clients_with_one_submission_id(serve):
    with serve(limits=Limits(running=8)) as served:
        url, made = f"{served.url}/distsort/v1/jobs", []
        both = threading.Barrier(8)

        def submit():
            both.wait()
            made.append(ask(url, "POST", {**GOOD, "submission_id": "same"}, ALLOWED)[0])

        threads = [threading.Thread(target=submit) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(made) == [200] * 7 + [201]
        assert served.client.wait("same", PATIENCE)["attempt"] == 1
        assert served.manager.totals.attempts == 1


def test_a_restart(serve):
    with serve() as served:
        served.submit("fine", "done")
        served.client.wait("done", PATIENCE)
        served.submit("second", "runs")
        served.submit("fine", "waits")
        before = served.client.status("done")
        until(lambda: served.client.logs("runs")["text"])
    with serve() as served:
        lost = served.client.status("runs")
        assert lost["state"] == "FAILED"
        assert lost["reason"] == "lost: the scheduler was shut down while the job ran; submit it again"
        assert served.client.status("done") == before
        assert served.client.wait("waits", PATIENCE)["state"] == "SUCCEEDED", "what waited goes on"
        served.submit("second", "runs")
        again = served.client.wait("runs", PATIENCE)
        assert (again["state"], again["attempt"]) == ("SUCCEEDED", 2)


def test_a_restart_after_a_crash(serve, tmp_path):
    with serve() as served:
        served.submit("sleep", "runs")
        record = (tmp_path / "jobs" / "runs" / "job.json").read_bytes()
    (tmp_path / "jobs" / "runs" / "job.json").write_bytes(record)
    with serve() as served:
        lost = served.client.status("runs")
        assert (lost["state"], lost["attempt"]) == ("FAILED", 1)
        assert lost["reason"] == "lost: the scheduler was restarted while the job ran; submit it again"


def test_a_restart_after_the_output_was_published(serve, tmp_path):
    folder = tmp_path / "jobs" / "runs"
    with serve() as served:
        served.submit("sleep", "runs")
        record = (folder / "job.json").read_bytes()
    (folder / "job.json").write_bytes(record)
    result = {"rows": 6, "nbytes": 48, "seconds": 0.5, "balance": 1.0, "phases": []}
    (folder / "answer.json").write_text(json.dumps({"ok": True, "result": result}))
    with serve() as served:
        job = served.client.status("runs")
        assert (job["state"], job["result"]) == ("SUCCEEDED", result)


def test_old_jobs_are_forgotten(serve, tmp_path):
    with serve(limits=Limits(keep=3)) as served:
        for i in range(6):
            served.submit("fine", f"a{i}")
            served.client.wait(f"a{i}", PATIENCE)
        until(lambda: [job["id"] for job in served.client.list()] == ["a5", "a4", "a3"])
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["a3", "a4", "a5", "lock"]


def test_a_full_disk_refuses_jobs_and_keeps_the_queue(served, monkeypatch):
    def full(job):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(served.manager.records, "save", full)
    assert "No space left" in refused(lambda: served.submit("fine", "a"), 503)
    assert served.client.list() == []
    monkeypatch.undo()
    served.submit("fine", "a")
    assert served.client.wait("a", PATIENCE)["state"] == "SUCCEEDED"


def test_pages_of_the_list(served):
    for i in range(5):
        served.submit("fine", f"a{i}")
    _, _, first = ask(f"{served.url}/distsort/v1/jobs?limit=2")
    assert [job["id"] for job in first["jobs"]] == ["a4", "a3"]
    assert first["more"]
    assert sum(first["counts"].values()) == 5
    _, _, rest = ask(f"{served.url}/distsort/v1/jobs?limit=5&before={first['jobs'][-1]['number']}")
    assert [job["id"] for job in rest["jobs"]] == ["a2", "a1", "a0"]
    assert not rest["more"]


def test_metrics(served):
    collector = Collector(served.manager)
    collector.register()
    try:
        for what in ("fine", "wrong"):
            served.submit(what, what)
            served.client.wait(what, PATIENCE)
        served.submit("sleep", "runs")
        served.submit("sleep", "waits")
        lines = generate_latest().decode().splitlines()
    finally:
        collector.unregister()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("distsort"))
    assert values['distsort_jobs{state="running"}'] == "1.0"
    assert values['distsort_jobs{state="pending"}'] == "1.0"
    assert values['distsort_jobs_finished_total{state="succeeded"}'] == "1.0"
    assert values['distsort_jobs_finished_total{state="failed"}'] == "1.0"
    assert values["distsort_sorted_rows_total"] == "6.0"
    assert values["distsort_sorted_bytes_total"] == "48.0"
    assert values["distsort_attempts_total"] == "3.0"
    assert values['distsort_phase_busy_seconds_total{phase="sort"}'] == "0.25"
    assert float(values["distsort_queue_oldest_seconds"]) > 0
    assert not any(line.startswith(b"distsort") for line in generate_latest(REGISTRY).splitlines())


def test_the_page_and_the_description(served):
    status, headers, page = ask(f"{served.url}/distsort/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert ask(f"{served.url}/prefix/of/dashboard/distsort/")[0] == 200
    assert ask(f"{served.url}/prefix/distsort/v1/ready")[2]["ready"]
    status, _, text = ask(f"{served.url}/distsort/v1/openapi.yaml")
    described = yaml.safe_load(text)
    assert status == 200
    assert described["openapi"].startswith("3.1")


def test_the_description_lists_every_route_and_field(served):
    with urllib.request.urlopen(f"{served.url}/distsort/v1/openapi.yaml", timeout=PATIENCE) as answer:
        described = yaml.safe_load(answer.read())
    routes = {rule.matcher.regex.pattern for rule in http.application(served.manager, None).wildcard_router.rules}
    for path in described["paths"]:
        assert any(path.replace("{id}", "(?P<id>[^/]+)") in route for route in routes), path
    properties = described["components"]["schemas"]["Submission"]["properties"]
    from distsort.service.spec import _FIELDS

    assert set(properties) == {*_FIELDS, "submission_id"}


def test_a_client_without_a_service():
    client = SortClient("http://127.0.0.1:9", TOKEN)
    assert "cannot be reached" in refused(client.ready, 0)
