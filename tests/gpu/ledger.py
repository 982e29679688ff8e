"""The evidence file while it is made: results are written at once, a failure costs only itself, time is counted.

    measure(row) --> wanted? --> enough time? --> try --> row | failure | note, with its seconds, in the file

So a run that is killed, or runs out of time, leaves all that it has shown; and one that goes on (``resume``) measures
only what is missing or of other code.
"""

from __future__ import annotations

import datetime
import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FIRST = ("date", "gpus", "driver", "code_sha256", "parts", "tests", "sanitizer", "rows", "benches")
LAST = ("failures", "skipped", "seconds", "suites")


class Ledger:
    """One run that adds to an evidence file.

    Parameters
    ----------
    file
        Read if it is there; written after each result.
    code
        The hash of the code that is shown at work.
    machine
        Fields that say on what: gpus, driver.
    order
        Ids of rows as they stand in the file.
    budget
        Seconds for all; None for no limit.
    resume
        Leave out what the file has of this code.
    """

    def __init__(
        self,
        file: Path,
        code: str,
        machine: dict[str, Any],
        order: Sequence[str] = (),
        budget: float | None = None,
        resume: bool = False,
    ) -> None:
        self.file, self.code, self.machine, self.order, self.resume = file, code, machine, order, resume
        self.evidence: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.end = None if budget is None else time.monotonic() + budget
        self.begun = time.monotonic()

    def left(self) -> float:
        """Return the seconds that are left; without a budget an hour."""
        return 3600.0 if self.end is None else self.end - time.monotonic()

    def wants(self, name: str) -> bool:
        """Whether a row or step is to be made: always, or with `resume` where the file has none of this code."""
        rows = {row["id"]: row for row in self.evidence.get("rows", [])}
        made = (
            rows[name].get("code") if name in rows else self.evidence.get("parts", {}).get(name, {}).get("code_sha256")
        )
        failed = name in self.evidence.get("failures", {})
        return not self.resume or failed or made is None or not self.code.startswith(made)

    def measure(self, row: str, needs: float, work: Callable[[], dict[str, Any]]) -> None:
        """Make one row: `work` returns its fields but the id. `needs`: seconds without which it is not begun."""

        def keep() -> None:
            made = {"id": row, **work(), "code": self.code[:12]}
            rows = {r["id"]: r for r in (*self.evidence.get("rows", []), made)}
            known = [name for name in self.order if name in rows]
            self.evidence["rows"] = [rows[name] for name in (*known, *(n for n in rows if n not in known))]
            print(made, flush=True)

        self.step(row, needs, keep)

    def step(self, name: str, needs: float, work: Callable[[], None], part: bool = False, always: bool = False) -> None:
        """Do something that may fail, or for which time may not suffice.

        `part`: note it as a part of this code; `always`: it knows by itself what there is to do.
        """
        if not (always or self.wants(name)):
            return
        failures, skipped = self._notes("failures"), self._notes("skipped")
        failures.pop(name, None)
        skipped.pop(name, None)
        if self.left() < needs:
            skipped[name] = f"{max(self.left(), 0):.0f} s were left, it needs {needs:.0f} s"
            print(f"{name}: {skipped[name]}", flush=True)
            self.write()
            return
        begun = time.monotonic()
        try:
            work()
        except (Exception, SystemExit) as error:
            failures[name] = f"{type(error).__name__}: {error}"[:2000]
            traceback.print_exc()
        if part and name not in failures:
            self.close(name)
        seconds = time.monotonic() - begun
        self._notes("seconds")[name] = round(seconds, 1)
        state = "failed" if name in failures else "done"
        print(f"[{time.monotonic() - self.begun:6.1f} s] {name} {state} in {seconds:.1f} s", flush=True)
        self.write()

    def close(self, part: str) -> None:
        """Note that a part was made with this code."""
        self._notes("parts")[part] = {
            "date": today(),
            "code_sha256": self.code,
            "gpus": len(self.machine.get("gpus", ())),
        }

    def _notes(self, kind: str) -> dict[str, Any]:
        notes: dict[str, Any] = self.evidence.setdefault(kind, {})
        return notes

    def write(self) -> None:
        """Write the file, whole or not at all."""
        self.evidence |= self.machine | {"date": today(), "code_sha256": self.code}
        rest = [name for name in self.evidence if name not in (*FIRST, *LAST)]
        kept = [n for n in (*FIRST, *rest, *LAST) if n in self.evidence and self.evidence[n] not in ({}, [])]
        half = self.file.with_suffix(".half")
        half.write_text(json.dumps({name: self.evidence[name] for name in kept}, indent=1) + "\n")
        half.replace(self.file)


def today() -> str:
    """Return the date, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()  # noqa: UP017 (--check runs on any Python)
