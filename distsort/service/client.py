"""A client of the job service, on the standard library alone."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from distsort.errors import ServiceError
from distsort.service.view import SortJob, SortJobs

_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class SortClient:
    """Submits sort jobs to a service and asks about them.

    Jobs are plain dictionaries, as `openapi.yaml` describes them; a notebook shows them drawn.

    Parameters
    ----------
    url
        Of the scheduler's dashboard, as in ``http://host:8787``; if None ``DISTSORT_URL`` in the environment, else
        `distsort.service.url`.
    token
        Needed to submit, stop and delete; if None ``DISTSORT_TOKEN`` in the environment.
    timeout
        Seconds to wait for one answer.

    Raises
    ------
    ServiceError
        By every method, when the service refuses or cannot be reached; ``status`` is the HTTP status, 0 without an
        answer.

    Examples
    --------
    >>> client = SortClient("http://host:8787", token="secret-of-16-or-more")
    >>> job = client.submit("/data/in", "/data/out", by="id")  # doctest: +SKIP
    >>> client.wait(job["id"])["state"]  # doctest: +SKIP
    'SUCCEEDED'
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 30.0) -> None:
        if url is None:
            url = os.environ.get("DISTSORT_URL")
        if url is None:
            from distsort import config

            url = str(config.get("service.url"))
        self.url = url.rstrip("/")
        self.token = os.environ.get("DISTSORT_TOKEN") if token is None else token
        self.timeout = timeout

    def submit(
        self,
        src: str | Sequence[str],
        dst: str,
        by: str | Sequence[str] | None = None,
        *,
        submission_id: str | None = None,
        performance_report: bool = False,
        **options: Any,
    ) -> SortJob:
        """Queue a sort and return its job.

        Parameters
        ----------
        src, dst, by
            As in `distsort.sort_files`; paths are absolute, and are those of the cluster.
        submission_id
            Makes a repeated submission safe: it is answered with the job that is there. A job that FAILED or was
            STOPPED is queued again.
        performance_report
            Whether Dask's performance report is wanted.
        options
            More arguments of `distsort.sort_files`.
        """
        body = {"src": src, "dst": dst, "by": by, **options, "performance_report": performance_report}
        body = {name: list(value) if isinstance(value, tuple) else value for name, value in body.items()}
        if submission_id is not None:
            body["submission_id"] = submission_id
        return SortJob(self._ask("POST", "jobs", {name: value for name, value in body.items() if value is not None}))

    def status(self, id: str) -> SortJob:
        """Return a job."""
        return SortJob(self._ask("GET", f"jobs/{quote(id, safe='')}"))

    def list(self, state: str | None = None, limit: int = 100) -> SortJobs:
        """Return jobs, the last submitted first; of one state, or of all."""
        query = {"limit": limit, **({} if state is None else {"state": state})}
        return SortJobs(map(SortJob, self._ask("GET", f"jobs?{urlencode(query)}")["jobs"]))

    def logs(self, id: str, start: int = 0, size: int = 1 << 16) -> dict[str, Any]:
        """Return a piece of a job's log: text, from, next, total (bytes) and done."""
        return self._ask("GET", f"jobs/{quote(id, safe='')}/logs?{urlencode({'from': start, 'size': size})}")

    def follow(self, id: str, interval: float = 0.5) -> Iterator[str]:
        """Yield a job's log as it grows, until the job is over."""
        place = 0
        while True:
            piece = self.logs(id, place)
            if piece["text"]:
                yield piece["text"]
            place = piece["next"]
            if piece["done"]:
                return
            if place >= piece["total"]:
                time.sleep(interval)

    def watch(self, id: str, interval: float = 0.5) -> Iterator[SortJob]:
        """Yield a job, time and again, the last time when it is over."""
        while True:
            job = self.status(id)
            yield job
            if job["state"] in _OVER:
                return
            time.sleep(interval)

    def wait(self, id: str, timeout: float | None = None) -> SortJob:
        """Return a job once it is over.

        Raises
        ------
        TimeoutError
            It is not over after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        for job in self.watch(id):
            if job["state"] in _OVER:
                return job
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"job {id} is {job['state']} after {timeout} s")
        raise AssertionError("watch ends with a job that is over")

    def stop(self, id: str) -> SortJob:
        """Stop a job and return it; a running one is STOPPED a moment later."""
        return SortJob(self._ask("POST", f"jobs/{quote(id, safe='')}/stop"))

    def delete(self, id: str) -> None:
        """Forget a finished job, its log too; its output stays."""
        self._ask("DELETE", f"jobs/{quote(id, safe='')}")

    def ready(self) -> dict[str, Any]:
        """Say whether jobs are taken, and by how many workers."""
        return self._ask("GET", "ready")

    def version(self) -> dict[str, Any]:
        """Return the versions of the service."""
        return self._ask("GET", "version")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif method == "POST":
            data = b""
        if self.token and method != "GET":
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            request = urllib.request.Request(f"{self.url}/distsort/v1/{path}", data, headers, method=method)
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                said = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ServiceError(error.code, _reason(error, self.url)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(0, f"{self.url}: the service cannot be reached ({reason}): is the URL right?") from None
        answer: dict[str, Any] = json.loads(said) if said else {}
        return answer


def _reason(error: urllib.error.HTTPError, url: str) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{url}: {error.code} {error.reason}: does a scheduler with distsort.service answer there?"
