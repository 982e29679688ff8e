"""Jobs on disk: one folder for each, which a restarted scheduler reads again.

<directory>/lock              held while a scheduler uses the directory
<directory>/<id>/job.json     the job, replaced in one rename at every change of its state
<directory>/<id>/log          what its process printed, all attempts
<directory>/<id>/answer.json  what its process said last
<directory>/<id>/performance.html

A record that cannot be read is reported and left alone.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from distsort.errors import DistsortError, OptionError
from distsort.service.jobs import ID, Job

logger = logging.getLogger(__name__)

_MODE = 0o750


class Records:
    """The folder of a service's jobs.

    Parameters
    ----------
    directory
        Made if it is missing.

    Raises
    ------
    OptionError
        It cannot be written, or another scheduler uses it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()
        try:
            self.directory.mkdir(_MODE, parents=True, exist_ok=True)
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise OptionError(f"distsort.service.directory={directory}: {error.strerror}: choose another") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise OptionError(
                f"distsort.service.directory={directory}: another scheduler uses it: give each its own"
            ) from error

    def close(self) -> None:
        """Let another scheduler use the directory."""
        os.close(self._lock)

    def load(self) -> list[Job]:
        """Return all jobs; a record that cannot be read is reported and left alone."""
        jobs = []
        for path in sorted(self.directory.glob("*/job.json")):
            if not ID.fullmatch(path.parent.name):
                continue
            try:
                jobs.append(Job.from_dict(json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, TypeError, KeyError, DistsortError) as error:
                logger.error("%s cannot be read and is left out: %s", path, error)
        return jobs

    def save(self, job: Job) -> None:
        """Store a job so that a crash leaves either the earlier state or this one."""
        folder = self.folder(job.id)
        folder.mkdir(_MODE, exist_ok=True)
        write_json(folder / "job.json", job.to_dict())

    def folder(self, id: str) -> Path:
        """Return the folder of a job."""
        return self.directory / id

    def answer(self, id: str) -> dict[str, Any] | None:
        """Return what the process of a job said when it ended; None if it could not."""
        try:
            said: dict[str, Any] = json.loads((self.folder(id) / "answer.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return said

    def forget_answer(self, id: str) -> None:
        """Remove what an earlier attempt said."""
        (self.folder(id) / "answer.json").unlink(missing_ok=True)

    def read_log(self, id: str, start: int, size: int) -> tuple[str, int, int]:
        """Return a piece of a log, where the next one begins, and the length so far (bytes).

        A character is never cut in two: the piece may be a few bytes shorter than asked for.
        """
        try:
            with (self.folder(id) / "log").open("rb") as file:
                total = file.seek(0, os.SEEK_END)
                start = min(start, total)
                file.seek(start)
                piece = file.read(size)
        except FileNotFoundError:
            return "", 0, 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(piece)
        used = len(piece) - len(decoder.getstate()[0])
        if not used:
            return piece.decode(errors="replace"), start + len(piece), total
        return text, start + used, total

    def remove(self, id: str) -> None:
        """Forget a job; a crash in between leaves a folder that is not read again."""
        doomed = self.directory / f".{id}.removed"
        with suppress(FileNotFoundError):
            self.folder(id).rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write a file that is there whole or not at all, also after a crash of the machine."""
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
