"""The HTTP interface: routes that are added to those of the scheduler. `openapi.yaml` describes them.

Reading is open, as the scheduler's own pages are. Writing needs the token: ``Authorization: Bearer ...``. Every error
is JSON, ``{"error": "what was wrong and what to do"}``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import platform
import re
import uuid
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

import dask
import distributed
import tornado.web as web

from distsort import __version__
from distsort.errors import DistsortError, OptionError, ServiceError
from distsort.service.jobs import State
from distsort.service.manager import Manager
from distsort.service.runner import PERFORMANCE
from distsort.service.spec import Spec

logger = logging.getLogger("distsort.service")

LARGEST_BODY = 1 << 20
LARGEST_PIECE = 1 << 20
LARGEST_PAGE = 1000
_HERE = Path(__file__).parent


def application(manager: Manager, token: str | None) -> web.Application:
    """Return the routes of a service.

    Parameters
    ----------
    manager
        The jobs.
    token
        What a client must show to write; None for a service that can only be read.

    Returns
    -------
    tornado.web.Application
        To be added to the scheduler's; a prefix of the dashboard may stand before every path.
    """
    known: dict[str, Any] = {"manager": manager, "token": token}
    api = r"(?:/[^/]+)*/distsort/v1"
    job = rf"{api}/jobs/(?P<id>[^/]+)"
    return web.Application(
        [
            (r"(?:/[^/]+)*/distsort", web.RedirectHandler, {"url": "distsort/", "permanent": False}),
            (r"(?:/[^/]+)*/distsort/", Page),
            (rf"{api}/openapi\.yaml", OpenAPI),
            (rf"{api}/version", Version, known),
            (rf"{api}/ready", Ready, known),
            (rf"{api}/jobs", Jobs, known),
            (job, One, known),
            (rf"{job}/logs", Logs, known),
            (rf"{job}/stop", Stop, known),
            (rf"{job}/performance-report", Performance, known),
            (rf"{api}(?:/.*)?", Nothing, known),
        ]
    )


class Handler(web.RequestHandler):
    """What all routes share."""

    def set_default_headers(self) -> None:
        """Keep answers out of caches and of pages of others."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.clear_header("Server")

    def compute_etag(self) -> str | None:
        """Answers change all the time."""
        return None


class Api(Handler):
    """A route that speaks JSON."""

    def initialize(self, manager: Manager, token: str | None) -> None:
        """Take what the application knows."""
        self.manager = manager
        self.token = token

    def answer(self, value: Mapping[str, Any], status: int = 200) -> None:
        """Send a JSON object."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send an error as JSON; what is no fault of the client goes to the scheduler's log only."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        if isinstance(error, ServiceError):
            status_code, text = error.status, str(error)
        elif isinstance(error, DistsortError):
            status_code, text = 400, str(error)
        elif isinstance(error, web.HTTPError):
            text = error.log_message or self._reason
        else:
            text = "the service failed; its log says why"
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="distsort"')
        if status_code == 405:
            self.set_header("Allow", ", ".join(self._methods()))
            text = f"{self.request.method} is not possible here: use {' or '.join(self._methods())}"
        if status_code == 429:
            self.set_header("Retry-After", "30")
        self.answer({"error": text}, status_code)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what is no fault of the client."""
        if not isinstance(value, DistsortError | web.HTTPError):
            logger.error("%s %s", self.request.method, self.request.path, exc_info=(typ, value, tb))

    def authorize(self) -> None:
        """Refuse who does not bear the token.

        Raises
        ------
        ServiceError
            403 from a service without a token, 401 for a wrong one.
        """
        if self.token is None:
            raise ServiceError(403, "this service is read-only: it was started without a token")
        scheme, _, given = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            raise ServiceError(401, "the token is missing or wrong: send 'Authorization: Bearer TOKEN'")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Read a whole number from the query."""
        text = self.get_query_argument(name, str(default))
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise OptionError(f"{name}={text!r}: it must be a whole number from {least} to {most}")
        return int(text)

    def _methods(self) -> list[str]:
        here = type(self)
        return [
            m for m in self.SUPPORTED_METHODS if getattr(here, m.lower()) is not getattr(web.RequestHandler, m.lower())
        ]


class Version(Api):
    """GET version."""

    def get(self) -> None:
        """Say what runs here."""
        self.answer(
            {
                "version": __version__,
                "api": "v1",
                "dask": dask.__version__,
                "distributed": distributed.__version__,
                "python": platform.python_version(),
            }
        )


class Ready(Api):
    """GET ready: whether jobs are taken. Workers are not needed for that: they find the scheduler once it is ready."""

    def get(self) -> None:
        """Answer 200, or 503 when the scheduler shuts down."""
        scheduler = self.manager.scheduler
        ready = not self.manager.closing
        self.answer(
            {
                "ready": ready,
                "read_only": self.token is None,
                "workers": len(scheduler.workers),
                "threads": sum(worker.nthreads for worker in scheduler.workers.values()),
            },
            200 if ready else 503,
        )


@web.stream_request_body
class Jobs(Api):
    """GET and POST jobs."""

    def prepare(self) -> None:
        """Refuse a body from strangers, or of another kind, before it is read."""
        self.body = bytearray()
        if self.request.method != "POST":
            return
        self.authorize()
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ServiceError(415, f"Content-Type is {kind!r}: send application/json")

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Keep a piece of the body, unless too many came already."""
        if len(self.body) <= LARGEST_BODY:
            self.body += chunk
        return None

    def get(self) -> None:
        """List jobs, the last submitted first."""
        limit = self.number("limit", 100, 1, LARGEST_PAGE)
        before = self.number("before", 10**15, 1, 10**15)
        wanted = self.get_query_argument("state", None)
        if wanted is not None and wanted not in list(State):
            raise OptionError(f"state={wanted!r}: it must be one of {', '.join(State)}")
        book = self.manager.book
        found = [job for job in book if job.number < before and wanted in (None, job.state)]
        found.reverse()
        self.answer(
            {
                "jobs": [self.manager.view(job) for job in found[:limit]],
                "more": len(found) > limit,
                "counts": {str(state): book.count(state) for state in State},
            }
        )

    def post(self) -> None:
        """Queue a job; the same submission again is answered with the job that is there."""
        if len(self.body) > LARGEST_BODY:
            raise ServiceError(413, f"the body is too large: at most {LARGEST_BODY:,} bytes are taken")
        try:
            values = json.loads(bytes(self.body))
        except (ValueError, RecursionError) as error:
            raise OptionError(f"the body is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise OptionError("the body is not a JSON object: send src, dst and by")
        id = values.pop("submission_id", f"sort-{uuid.uuid4().hex[:12]}")
        if not isinstance(id, str):
            raise OptionError(f"submission_id={id!r}: it must be a text")
        job, queued = self.manager.submit(id, Spec.parse(values))
        if queued:
            self.set_header("Location", f"jobs/{job.id}")
        self.answer(self.manager.view(job), 201 if queued else 200)


class One(Api):
    """GET and DELETE a job."""

    def get(self, id: str) -> None:
        """Show a job."""
        self.answer(self.manager.view(self.manager.book.get(id)))

    def delete(self, id: str) -> None:
        """Forget a finished job."""
        self.authorize()
        self.manager.delete(id)
        self.set_status(204)
        self.finish()


class Logs(Api):
    """GET a piece of a job's log."""

    def get(self, id: str) -> None:
        """Send ``size`` bytes from byte ``from`` on; ``next`` is where to go on, ``done`` says that no more comes."""
        job = self.manager.book.get(id)
        done = not job.state.active
        start = self.number("from", 0, 0, 10**15)
        size = self.number("size", 1 << 16, 1, LARGEST_PIECE)
        text, after, total = self.manager.records.read_log(id, start, size)
        self.answer(
            {
                "text": text,
                "from": min(start, total),
                "next": after,
                "total": total,
                "done": done and after >= total,
            }
        )


class Stop(Api):
    """POST stop."""

    def post(self, id: str) -> None:
        """Stop a job; a running one is STOPPED a moment later."""
        self.authorize()
        self.answer(self.manager.view(self.manager.stop(id)))


class Performance(Api):
    """GET Dask's performance report of a job."""

    def get(self, id: str) -> None:
        """Send the report, in a sandbox: it is a page made by a library, with scripts of its own."""
        self.manager.book.get(id)
        try:
            page = (self.manager.records.folder(id) / PERFORMANCE).read_bytes()
        except FileNotFoundError:
            raise ServiceError(404, f"job {id} has no performance report: submit with performance_report") from None
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "sandbox allow-scripts")
        self.finish(page)


class Nothing(Api):
    """All other paths below ours."""

    def prepare(self) -> None:
        """Say that nothing is here."""
        raise ServiceError(404, f"{self.request.path}: there is no such route; openapi.yaml lists them")


class OpenAPI(Handler):
    """GET openapi.yaml."""

    def get(self) -> None:
        """Send the description of the interface."""
        self.set_header("Content-Type", "application/yaml")
        self.finish((_HERE / "openapi.yaml").read_bytes())


class Page(Handler):
    """GET the page of jobs: one file, which loads nothing but the list of jobs."""

    def get(self) -> None:
        """Send the page; its policy allows its own script and style by their hashes, and nothing else."""
        page = (_HERE / "page.html").read_text(encoding="utf-8")
        sources = {
            f"{kind}-src": " ".join(
                f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
                for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
            )
            for kind, tag in (("script", "script"), ("style", "style"))
        }
        policy = {"default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'"}
        policy = {**policy, **sources, "form-action": "'none'", "frame-ancestors": "'none'"}
        self.set_header("Content-Security-Policy", "; ".join(f"{name} {value}" for name, value in policy.items()))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)
