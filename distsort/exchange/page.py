"""A page on the scheduler's dashboard server: the pull exchanges that run, and what each worker's store holds.

Added beside the routes that are there: ``/distsort-exchange`` to look at, ``/distsort-exchange.json`` for programs.
What a browser shows is written here whole, without scripts of others, and renews itself.
"""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

import tornado.web as web

if TYPE_CHECKING:
    from distsort.exchange.scheduler import PullState

PATH = "/distsort-exchange"
REFRESH = 2
"""Seconds between two looks of the page."""

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.2rem; } table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #ddd; } th { color: #666; font-weight: 500; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; } progress { width: 6rem; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } th, td { border-color: #333; } }
"""


def add_page(state: PullState) -> None:
    """Add the page to the scheduler of `state`, if it has a dashboard server."""
    application = getattr(state.scheduler, "http_application", None)
    if application is not None:
        routes = [(PATH, _Page, {"state": state}), (f"{PATH}.json", _Json, {"state": state})]
        application.add_application(web.Application(routes))


class _Json(web.RequestHandler):
    def initialize(self, state: PullState) -> None:
        self.state = state

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(self.state.overview()))


class _Page(_Json):
    def get(self) -> None:
        self.write(render(self.state.overview()))


def render(overview: dict[str, Any]) -> str:
    """Return the page that shows an overview (see `PullState.overview`)."""
    sorts = [
        [
            html.escape(s["sort"]),
            s["phase"],
            f"<progress max='{s['runs']}' value='{s['runs_made']}'></progress> {s['runs_made']:,} of {s['runs']:,}",
            f"<progress max='{s['parts']}' value='{s['parts_made']}'></progress> {s['parts_made']:,} of {s['parts']:,}",
            f"{s['seconds']:.1f} s",
            f"{s['lost']:,}",
        ]
        for s in overview["sorts"]
    ]
    workers = [
        [html.escape(address), f"{w['runs']:,}", *(size(w[k]) for k in ("memory", "disk", "spilled", "pulled"))]
        for address, w in overview["workers"].items()
    ]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta http-equiv='refresh' content='{REFRESH}'>"
        f"<meta name='viewport' content='width=device-width'><title>distsort exchange</title><style>{STYLE}</style>"
        "</head><body><h1>Sorts that exchange now</h1>"
        + _table(["sort", "phase", "runs", "parts", "since", "runs lost"], sorts, "No sort is running.")
        + "<h1>Run stores</h1>"
        + _table(
            ["worker", "runs", "in memory", "on disk", "spilled so far", "pulled so far"], workers, "No worker yet."
        )
        + "</body></html>"
    )


def _table(heads: list[str], rows: list[list[str]], nothing: str) -> str:
    if not rows:
        return f"<p>{nothing}</p>"
    head = "".join(f"<th>{h}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def size(nbytes: float) -> str:
    """Return a number of bytes to read.

    Examples
    --------
    >>> size(0), size(3 << 20)
    ('0 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"
