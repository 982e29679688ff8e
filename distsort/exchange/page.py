"""A page on the scheduler's dashboard server: the pull exchanges that run, and what each worker's store holds.

Added beside the routes that are there: ``/distsort-exchange`` to look at, ``/distsort-exchange.json`` for programs.
What a browser shows is written here whole, without scripts of others, and renews itself.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import tornado.web as web

from distsort.report import bytes_text, seconds_text
from distsort.report_html import document, heading, table, tracks

if TYPE_CHECKING:
    from distsort.exchange.news import News

PATH = "/distsort-exchange"
REFRESH = 2
"""Seconds between two looks of the page."""


def add_page(news: News) -> None:
    """Add the page to the scheduler that `news` is of, if it has a dashboard server."""
    application = getattr(news.scheduler, "http_application", None)
    if application is not None:
        routes = [(PATH, _Page, {"news": news}), (f"{PATH}.json", _Json, {"news": news})]
        application.add_application(web.Application(routes))


class _Json(web.RequestHandler):
    def initialize(self, news: News) -> None:
        self.news = news

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(self.news.overview()))


class _Page(_Json):
    def get(self) -> None:
        self.write(render(self.news.overview()))


def render(overview: dict[str, Any]) -> str:
    """Return the page that shows an overview (see `News.overview`)."""
    workers = [
        (address, f"{w['runs']:,}", *(bytes_text(w[k]) for k in ("memory", "disk", "spilled", "pulled")))
        for address, w in overview["workers"].items()
    ]
    stores = table(("worker", "runs", "in memory", "on disk", "spilled so far", "pulled so far"), workers)
    return document(
        "distsort exchange",
        heading("Sorts that exchange now"),
        *(_sort(each) for each in overview["sorts"]),
        "" if overview["sorts"] else "<p>No sort is running.</p>",
        f"<h2>Run stores</h2>{stores if workers else '<p>No worker yet.</p>'}",
        head=f'<meta http-equiv="refresh" content="{REFRESH}">',
    )


def _sort(told: dict[str, Any]) -> str:
    bars = []
    for name in ("runs", "parts"):
        done, total = told[f"{name}_made"], told[name]
        bars.append((name, 0, done / max(total, 1), f"{done:,} of {total:,}"))
    lost = f", {told['lost']:,} runs lost" if told["lost"] else ""
    where = f"{told['sort']}: {told['phase']}, for {seconds_text(told['seconds'])}{lost}"
    return f'<p class="where">{escape(where)}</p>' + tracks("What is made, of runs and parts", bars, 1.0)
