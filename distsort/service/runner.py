"""The process of one job: ``python -m distsort.service.runner``, started by the scheduler.

Its orders come as one line of JSON on standard input, which stays open: its end means that the scheduler is gone, and
with it the job. What it prints is the job's log. Its last word is ``answer.json`` in the working folder. SIGTERM
unwinds the sort, which drops what it has staged.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from distsort.errors import DistsortError, ExchangeError, ServiceError
from distsort.service.records import write_json
from distsort.service.roots import Roots
from distsort.service.spec import Spec

ANSWER = "answer.json"
PERFORMANCE = "performance.html"

logger = logging.getLogger("distsort.job")


class Stopped(KeyboardInterrupt):
    """SIGTERM came."""


def main() -> int:
    """Run the job that standard input tells of; return the exit status."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%FT%T%z",
    )
    logging.getLogger("distributed").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, _stop)
    orders = json.loads(_read_line())
    threading.Thread(target=_watch_scheduler, args=(orders["stop_timeout"],), daemon=True).start()
    try:
        run(orders)
    except Stopped:
        logger.info("stopped" if Path(ANSWER).exists() else "stopped; nothing was written")
        return 128 + signal.SIGTERM
    except Exception as error:
        if Path(ANSWER).exists():
            logger.exception("the output is published; what came after it failed")
            return 0
        known = isinstance(error, DistsortError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        # What our own errors name stays wrong; the others, and a run that was lost too often, may pass.
        answer = {"ok": False, "reason": text, "again": not known or isinstance(error, ExchangeError)}
        logger.error("failed: %s", text, exc_info=None if known else error)
        write_json(Path(ANSWER), answer)
        return 1
    return 0


def run(orders: dict[str, Any]) -> None:
    """Sort as told, on the scheduler that gave the orders, and leave the answer once the output is published.

    Parameters
    ----------
    orders
        id, attempt, tag, address, spec and roots.
    """
    from distributed import Client

    from distsort.clusters import observed
    from distsort.files import sort_files

    spec = Spec.parse({name: value for name, value in orders["spec"].items() if value is not None})
    logger.info("job %s, attempt %d, on %s", orders["id"], orders["attempt"], orders["address"])
    _check_files(spec, Roots(orders["roots"]))
    with (
        Client(orders["address"], name=f"distsort-{orders['id']}", set_as_default=False) as client,
        observed(client, PERFORMANCE if spec.performance_report else None, orders["id"], orders["tag"]),
    ):
        report = sort_files(**spec.arguments(), client=client)
        plain = report.to_dict()
        rows = [part.rows for part in report.parts]
        plain.update(parts=len(rows), smallest_part=min(rows, default=0), largest_part=max(rows, default=0))
        write_json(Path(ANSWER), {"ok": True, "result": plain})
        print(report.summary(), flush=True)


def _check_files(spec: Spec, roots: Roots) -> None:
    """Refuse links below a root that lead out of it, now that wildcards and folders can be looked into."""
    from distsort.io.storage import expand

    for store, path, _ in expand(spec.src):
        if store.local and not roots.holds(path):
            raise ServiceError(403, f"{path} leads outside the allowed roots")


def _stop(signum: int, frame: Any) -> None:
    # Once: what is cleaning up already is left to it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def _read_line() -> bytes:
    """Read from standard input without a buffer: a thread that waits in one would block the end of this process."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            raise SystemExit("no orders came: this module is started by the job service")
        line += piece
    return line


def _watch_scheduler(patience: float) -> None:
    while os.read(0, 1 << 10):
        pass
    logger.error("the scheduler is gone")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
