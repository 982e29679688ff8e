"""The pure rooms of the service: states, queue, roots, records."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distsort.errors import OptionError, ServiceError
from distsort.service.jobs import Book, Job, Limits, State
from distsort.service.records import Records
from distsort.service.roots import Roots
from distsort.service.spec import Spec

SPEC = Spec(("/data/in",), "/data/out", ("k",))
RESULT = {"rows": 3, "nbytes": 24, "seconds": 1.0, "balance": 1.0, "phases": []}


class QueueMachine(RuleBasedStateMachine):
    """Random submissions, ends, stops and removals beside a model that is a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(running=2, queued=3, keep=4, keep_for=50.0)
        self.book = Book(self.limits)
        self.queue: list[str] = []
        self.now = 0.0

    @rule(id=st.sampled_from("abcdefgh"))
    def submit(self, id):
        self.now += 1
        before = self.book.jobs.get(id)
        again = before is not None and before.state in (State.FAILED, State.STOPPED)
        if before is not None and not again:
            assert self.book.submit(id, SPEC, self.now) == (before, False)
        elif len(self.queue) == self.limits.queued:
            with pytest.raises(ServiceError) as caught:
                self.book.submit(id, SPEC, self.now)
            assert caught.value.status == 429
            assert self.book.jobs.get(id) is before
        else:
            job, queued = self.book.submit(id, SPEC, self.now)
            assert queued
            assert job.state is State.PENDING
            assert job.attempt == (before.attempt if before else 0)
            self.queue.append(id)
            assert self.book.ahead(job) == len(self.queue) - 1

    @rule()
    def start(self):
        job = self.book.due()
        if self.book.count(State.RUNNING) == self.limits.running or not self.queue:
            assert job is None
        else:
            assert job is not None
            assert job.id == self.queue.pop(0), "first come, first served"
            started = self.book.put(job.start(self.now))
            assert started.attempt == job.attempt + 1

    @rule(how=st.sampled_from(["succeed", "fail", "stop", "again"]))
    @precondition(lambda self: self.book.count(State.RUNNING))
    def end(self, how):
        self.now += 1
        job = next(job for job in self.book if job.state is State.RUNNING)
        made = {
            "succeed": lambda: job.succeed(self.now, RESULT),
            "fail": lambda: job.fail(self.now, "why"),
            "stop": lambda: job.stop(self.now, "why"),
            "again": lambda: job.start(self.now),
        }[how]()
        self.book.put(made)
        assert (made.finished is None) == (how == "again")

    @rule()
    @precondition(lambda self: self.queue)
    def stop_waiting(self):
        self.book.put(self.book.get(self.queue.pop()).stop(self.now, "why"))

    @rule(id=st.sampled_from("abcdefgh"))
    def remove(self, id):
        job = self.book.jobs.get(id)
        if job is None or job.state.active:
            with pytest.raises(ServiceError) as caught:
                self.book.remove(id)
            assert caught.value.status == (404 if job is None else 409)
        else:
            self.book.remove(id)
            assert id not in self.book.jobs

    @rule(passed=st.sampled_from([0.0, 60.0]))
    def prune(self, passed):
        old = self.book.expired(self.now + passed)
        assert all(not job.state.active for job in old)
        for job in old:
            self.book.remove(job.id)
        left = [job for job in self.book if not job.state.active]
        assert len(left) <= (0 if passed else self.limits.keep)

    @invariant()
    def limits_hold(self):
        assert self.book.count(State.RUNNING) <= self.limits.running
        assert [job.id for job in self.book if job.state is State.PENDING] == self.queue
        numbers = [job.number for job in self.book]
        assert len(set(numbers)) == len(numbers)

    @invariant()
    def jobs_survive_json(self):
        for job in self.book:
            assert Job.from_dict(json.loads(json.dumps(job.to_dict()))) == job


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.STOPPED])
def test_what_is_over_does_not_run_again(state):
    job = Job("a", 1, SPEC, state, 0.0)
    for change in (lambda: job.start(1.0), lambda: job.fail(1.0, "x"), lambda: job.stop(1.0, "x")):
        with pytest.raises(ServiceError, match=f"job a is {state}"):
            change()


def test_one_id_is_one_job():
    book = Book(Limits())
    book.submit("a", SPEC, 0.0)
    with pytest.raises(ServiceError, match="belongs to another job") as caught:
        book.submit("a", Spec(("/data/in",), "/data/else", ("k",)), 0.0)
    assert caught.value.status == 409


@pytest.mark.parametrize("id", ["", "..", ".hidden", "a/b", "a b", "a" * 65, "ü", "a\n"])
def test_ids_that_are_no_file_names(id):
    with pytest.raises(OptionError, match="submission_id"):
        Book(Limits()).submit(id, SPEC, 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dst": "/o", "by": "k"}, "'src' is missing"),
        ({"src": "/i", "dst": "/o", "layout": {"size": 3}}, "some of length, key_offset, key_length"),
        ({"src": "/i", "dst": "/o", "layout": {"length": 0}}, "layout.length=0"),
        ({"src": "/i", "dst": "/o", "layout": {}}, "layout={}"),
        ({"src": "/i", "dst": "/o", "format": "xml"}, "format='xml'"),
        ({"src": "/i", "dst": "/o", "by": []}, "by=\\[\\]"),
        ({"src": "/i", "dst": "/o", "by": ["k", "k"]}, "more than once"),
        ({"src": "/i", "dst": "/o", "by": "k", "columns": ["x", "x"]}, "^columns= .* names 'x' more than once"),
        ({"src": "/i", "dst": "/o", "by": "k", "descending": True}, "did you mean ascending"),
        ({"src": "/i", "dst": "/o", "by": "k", "ascending": 1}, "ascending=1: it must be true or false"),
        ({"src": "/i", "dst": "/o", "by": "k", "ascending": [True, False]}, "2 entries for 1 keys"),
        ({"src": "/i", "dst": "/o", "by": "k", "na_position": "middle"}, "na_position='middle'"),
        ({"src": "/i", "dst": "/o", "by": "k", "npartitions": 0}, "npartitions=0"),
        ({"src": "/i", "dst": "/o", "by": "k", "npartitions": True}, "npartitions=True"),
        ({"src": "/i", "dst": "/o", "by": "k", "exchange": "push"}, "one of graph, pull"),
        ({"src": "/i", "dst": "/o", "by": "k", "delimiter": ",,"}, "one character"),
        ({"src": "/i\0", "dst": "/o", "by": "k"}, "src="),
        ({"src": "/i", "dst": "/o\ud800", "by": "k"}, "not valid Unicode"),
        ({"src": "/i", "dst": None, "by": "k"}, "dst=None"),
        ({"src": [["/i"]], "dst": "/o", "by": "k"}, "src="),
    ],
)
def test_bad_jobs_name_the_field(values, message):
    with pytest.raises(OptionError, match=message):
        Spec.parse(values)


def test_arguments_are_those_of_sort_files():
    spec = Spec.parse(
        {"src": "/i", "dst": "/o", "by": ["a", "b"], "ascending": [True, False], "performance_report": True}
    )
    assert spec.arguments() == {
        "src": ["/i"],
        "dst": "/o",
        "by": ["a", "b"],
        "ascending": [True, False],
        "na_position": "last",
        "overwrite": False,
        "npartitions": None,
        "columns": None,
        "format": None,
        "delimiter": None,
        "layout": None,
        "presorted": False,
        "backend": None,
        "exchange": None,
    }


class TestRoots:
    @pytest.fixture
    def home(self, tmp_path):
        (tmp_path / "data" / "in").mkdir(parents=True)
        (tmp_path / "database").mkdir()
        (tmp_path / "data" / "out").symlink_to(tmp_path / "database")
        return tmp_path

    def refused(self, roots, url, status):
        with pytest.raises(OptionError if status == 400 else ServiceError) as caught:
            roots.check(url, "src")
        assert "src=" in str(caught.value) or "no roots" in str(caught.value)
        if status == 403:
            assert caught.value.status == 403

    @pytest.mark.parametrize("url", ["in", "in/*.csv", "new/deep/out", ".", "in/[ab]*.csv"])
    def test_below(self, home, url):
        roots = Roots([str(home / "data"), "s3://bucket/team"])
        roots.check(f"{home}/data/{url}", "src")
        roots.check(f"file://{home}/data/{url}", "src")
        roots.check(f"s3://bucket/team/{url.strip('.')}", "src")

    @pytest.mark.parametrize(
        ("url", "status"),
        [
            ("/etc/passwd", 403),
            ("{home}/database", 403),
            ("{home}/data*", 403),
            ("{home}/dat?/in", 403),
            ("{home}", 403),
            ("{home}/data/out", 403),
            ("{home}/data/out/new", 403),
            ("{home}/data/../database", 400),
            ("data/in", 400),
            ("s3://bucket/teammate/x", 403),
            ("s3://bucket", 403),
            ("s3://other/team/x", 403),
            ("gs://bucket/team/x", 403),
            ("s3://bucket/team/../x", 400),
            ("s3://bucket/team/%2e%2e/x", 400),
            ("s3://user@bucket/team/x", 400),
            ("s3://bucket/team/x?versionId=1", 400),
            ("simplecache::s3://bucket/team/x", 400),
            ("zip://x::{home}/data/a.zip", 400),
            ("http://[", 400),
            ("LOCAL:///etc/passwd", 403),
        ],
    )
    def test_outside(self, home, url, status):
        self.refused(Roots([str(home / "data"), "s3://bucket/team"]), url.format(home=home), status)

    def test_none_means_none(self):
        self.refused(Roots([]), "/data/in", 403)

    @pytest.mark.parametrize("root", ["data", "s3://bucket/../x", "a::b"])
    def test_bad_roots(self, root):
        with pytest.raises(OptionError, match="root "):
            Roots([root])


class TestRecords:
    @pytest.fixture
    def records(self, tmp_path):
        made = Records(tmp_path / "jobs")
        yield made
        made.close()

    def test_round_trip_and_remove(self, records):
        jobs = [Job(f"job-{i}", i, SPEC, State.PENDING, 1.5) for i in range(3)]
        jobs[1] = jobs[1].start(2.0).succeed(3.0, RESULT, [{"phase": "sort", "done": 1}])
        for job in jobs:
            records.save(job)
        assert records.load() == jobs
        records.remove("job-0")
        records.remove("job-0")
        assert records.load() == jobs[1:]

    def test_a_broken_record_is_left_alone(self, records, caplog):
        records.save(Job("good", 1, SPEC, State.PENDING, 0.0))
        for name, text in {"empty": "", "half": '{"id": "half"', "old": '{"id": "old", "spec": {}}'}.items():
            (records.directory / name).mkdir()
            (records.directory / name / "job.json").write_text(text)
        assert [job.id for job in records.load()] == ["good"]
        assert sum("cannot be read" in line for line in caplog.messages) == 3
        assert (records.directory / "half" / "job.json").exists()

    def test_fields_of_later_versions_are_left_out(self, records):
        job = Job("a", 1, SPEC, State.PENDING, 0.0)
        assert Job.from_dict({**job.to_dict(), "colour": "red"}) == job

    def test_two_schedulers_do_not_share_a_directory(self, records):
        with pytest.raises(OptionError, match="another scheduler uses it"):
            Records(records.directory)

    def test_a_directory_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(OptionError, match=r"distsort\.service\.directory"):
            Records(tmp_path / "file" / "jobs")

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
    @given(text=st.text(string.ascii_letters + "äß€𝄞\n", max_size=60), size=st.integers(1, 9))
    def test_a_log_in_pieces_is_the_log(self, records, text, size):
        folder = Path(records.folder("log"))
        folder.mkdir(exist_ok=True)
        (folder / "log").write_text(text, encoding="utf-8", newline="")
        place, pieces = 0, []
        while True:
            piece, after, total = records.read_log("log", place, size)
            assert total == len(text.encode())
            assert after > place or place == total
            pieces.append(piece)
            if after == total:
                break
            place = after
        if size >= 4:
            assert "".join(pieces) == text
        else:
            assert len(pieces) <= len(text.encode()) + 1

    def test_a_log_that_is_not_there(self, records):
        assert records.read_log("none", 5, 10) == ("", 0, 0)

    def test_records_are_not_for_everyone(self, records):
        records.save(Job("a", 1, SPEC, State.PENDING, 0.0))
        assert not records.folder("a").stat().st_mode & 0o007
