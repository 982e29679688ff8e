"""How a sort in one process fits the memory that it was given.

What one unit needs at its peak is estimated here: the rows some times over (read, sorted or merged, about to
be written), and for each row what comparing it takes, its key codes and indices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from distsort.errors import SortMemoryError
from distsort.io.lines import LineReader
from distsort.io.raw import RawReader
from distsort.io.source import Source
from distsort.memory import resident_bytes
from distsort.report import bytes_text

# Copies of a unit's rows, and bytes for each of its rows besides, at the peak.
COPIES = 3.0
ROW_BYTES = 64
# The same of the bytes of records and lines, which are gathered a block at a time.
RAW_COPIES = 1.15
# What libraries allocate once they work, beside the rows.
LIBRARIES = 48 << 20


@dataclass(frozen=True)
class Budget:
    """How a sort fits the memory that it was given.

    Attributes
    ----------
    memory
        Bytes given.
    base
        Bytes that this process holds before a row is read, and libraries soon will.
    threads
        How many units are worked on at once.
    unit
        Bytes of rows in one unit.
    nbytes
        Bytes of all rows.
    row
        Bytes of one row.
    parts, slabs
        Output files, and slabs in each.
    copies
        Of the rows of a unit, at the peak.
    """

    memory: int
    base: int
    threads: int
    unit: int
    nbytes: int
    row: float
    parts: int
    slabs: int
    copies: float = COPIES

    @property
    def peak(self) -> int:
        """Bytes that this process will hold at most."""
        at_once = min(self.threads, max(1, -(-self.nbytes // max(self.unit, 1))))
        return self.base + int(at_once * min(self.unit, self.nbytes) * _factor(self.row, self.copies))

    @property
    def runs(self) -> int:
        """About how many run files there will be."""
        return max(1, -(-self.nbytes // max(self.unit, 1)))

    def _in_slabs(self) -> str:
        return "at once" if self.slabs == 1 else f"in {self.slabs:,} slabs"

    def explain(self) -> str:
        """Return the budget as text."""
        return "\n".join(
            [
                f"  memory    {bytes_text(self.memory)} given, {bytes_text(self.peak)} needed at the peak",
                f"  runs      about {self.runs:,} of {bytes_text(min(self.unit, self.nbytes))}",
                f"  threads   {self.threads}, each with a run or a slab of its own",
                f"  spill     {bytes_text(self.nbytes)} to disk, once",
                f"  parts     {self.parts:,}, each merged {self._in_slabs()}",
            ]
        )


def make_budget(source: Source, parts: int, memory: int, threads: int | None = None, base: int | None = None) -> Budget:
    """Divide the memory given.

    Parameters
    ----------
    source
        Its size and the size of its largest piece count.
    parts
        Output files.
    memory
        Bytes for the whole process.
    threads
        Units at once; as many as there are cores, or fewer where pieces are large, if None.
    base
        Bytes that the process needs without any rows; measured if None.

    Raises
    ------
    SortMemoryError
        The largest piece does not fit; the message says what would do.
    """
    base = resident_bytes() + LIBRARIES if base is None else base
    row = row_bytes(source)
    copies = RAW_COPIES * source.stored / max(source.nbytes, 1) if isinstance(source.reader, RawReader) else COPIES
    factor = _factor(row, copies)
    largest = max(source.sizes, default=0)
    count = threads or os.cpu_count() or 1
    while count > 1 and (memory - base) / count / factor < largest:
        count -= 1
    unit = int((memory - base) / count / factor)
    if unit < max(largest, 1 << 12):
        needed = base + int(factor * max(largest, 1 << 20))
        raise SortMemoryError(
            f"{bytes_text(memory)} of memory are too few: the largest piece of the input, a row group or a file that "
            f"cannot be cut, has {bytes_text(largest)} and the process needs {bytes_text(base)} of its own; give "
            f"{bytes_text(needed)}, or write the input with smaller row groups"
        )
    slabs = max(1, -(-source.nbytes // (parts * unit)))
    return Budget(memory, base, count, unit, source.nbytes, row, parts, slabs, copies)


def _factor(row: float, copies: float) -> float:
    return copies + ROW_BYTES / row


def row_bytes(source: Source) -> float:
    """Return the mean size of a row in memory, by the types of its columns where the rows are not counted."""
    if source.rows:
        return max(1.0, source.nbytes / source.rows)
    if isinstance(source.reader, LineReader):
        return max(1.0, source.reader.mean * source.nbytes / max(source.stored, 1))
    total = 0
    for field in source.schema:
        try:
            total += max(1, field.type.bit_width // 8)
        except ValueError:
            total += 16
    return float(max(total, 1))
