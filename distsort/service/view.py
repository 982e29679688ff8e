"""A job of the service as its client sees it: the plain dictionary of `openapi.yaml`, which a notebook shows drawn."""

from __future__ import annotations

from typing import Any

from distsort.report import bytes_text, seconds_text
from distsort.report_html import facts, fragment, heading, table, tracks


class SortJob(dict[str, Any]):
    """What the service says of one job."""

    @property
    def where(self) -> str:
        """How far it is, in few words.

        Examples
        --------
        >>> SortJob(state="PENDING", ahead=2).where
        '2 ahead of it'
        """
        if self["state"] == "PENDING":
            return f"{self['ahead']} ahead of it"
        if self["state"] == "RUNNING":
            again = f"attempt {self['attempt']}, " if self["attempt"] > 1 else ""
            done = {phase["phase"]: f" {phase['done']:,}/{phase['total']:,}" for phase in self["progress"]}
            return f"{again}{self['phase']}{done.get(self['phase'], '')}, {self['seconds']:.0f} s"
        if self["state"] == "SUCCEEDED":
            return f"{self['result']['rows']:,} rows in {self['result']['seconds']:.1f} s"
        return str(self["reason"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: state, phases on their way, and what came out."""
        phases = [
            (
                each["phase"],
                0,
                each["done"] / max(each["total"], 1),
                f"{each['done']:,} of {each['total']:,}, {seconds_text(each['seconds'])}",
            )
            for each in self.get("progress") or ()
        ]
        result = self.get("result") or {}
        told = {
            "state": str(self["state"]),
            "attempt": f"{self['attempt']}" if self.get("attempt", 0) > 1 else "",
            "rows": f"{result['rows']:,}" if result else "",
            "time": seconds_text(result["seconds"]) if result else "",
            "in memory": bytes_text(result["nbytes"]) if result else "",
            "parts": f"{result['parts']:,}" if result else "",
            "largest part / mean": f"{result['balance']:.4f}" if result else "",
        }
        drawn = tracks("Tasks that are done, by phase", phases, 1.0) if phases else ""
        where = f"to {result['output']}" if result else self.where
        return fragment(heading(f"Job {self['id']}", where), facts(told), drawn)


class SortJobs(list[SortJob]):
    """Jobs, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        title = f"{len(self):,} {'job' if len(self) == 1 else 'jobs'}"
        rows = [(job["id"], str(job["state"]), job.where) for job in self]
        return fragment(heading(title), table(("id", "state", ""), rows))
