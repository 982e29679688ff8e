"""The report of a job as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from distsort.report import Part, Phase, Report, Worker, bytes_text, seconds_text
from distsort.report_html import columns, document, facts, heading, round_steps, table, tracks

# Bars of the plot of parts, and lanes of the plot of processes; more share a bar, or are left to the table.
_BARS = 120
_LANES = 32


def page(report: Report) -> str:
    """Return a report as a page.

    Parameters
    ----------
    report
        Of a job that is done.
    """
    values = {
        "rows": f"{report.rows:,}",
        "time": seconds_text(report.seconds),
        "rows a second": f"{report.rows / report.seconds:,.0f}" if report.seconds > 0 else "",
        "in memory": bytes_text(report.nbytes),
        "stored, in": bytes_text(report.stored_in),
        "stored, out": bytes_text(report.stored_out),
        "largest part / mean": f"{report.balance:.4f}",
        "peak of a process": bytes_text(report.peak_memory) if report.workers else "",
        "spilled": bytes_text(report.spilled),
        "dropped rows": f"{report.dropped:,}" if report.dropped else "",
    }
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return document(
        f"distsort: {report.rows:,} rows",
        heading(
            f"Sorted {report.rows:,} rows in {seconds_text(report.seconds)}",
            f"by {report.order}, on {report.scheduler}, to {report.output}",
        ),
        facts(values),
        f"<h2>Phases</h2>{timeline(report.phases, report.seconds)}{_phase_table(report.phases)}",
        f"<h2>Rows of each part</h2>{balance(report.parts)}",
        f"<h2>Memory of each process</h2>{memory(report.workers, report.planned_memory)}" if report.workers else "",
        f"<h2>Plan</h2><pre>{escape(report.plan)}</pre>",
        f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        f"<p>Checked before it was published: the order within and between parts, the row count, and the checksum of "
        f"whole rows, <code>{escape(report.checksum)}</code>.</p>",
    )


def timeline(phases: Sequence[Phase], seconds: float) -> str:
    """Draw when each phase ran."""
    span = max([seconds, *(phase.stop for phase in phases)], default=0.0)
    ticks = [(place, seconds_text(place) if place else "0") for place in round_steps(span)]
    rows = [(p.name, p.start, p.stop, seconds_text(p.seconds)) for p in phases]
    return tracks("Start and end of each phase", rows, span, ticks=ticks)


def balance(parts: Sequence[Part]) -> str:
    """Draw the rows of each part; neighbours share a bar, by their largest, where there are many."""
    if not parts:
        return "<p>No parts.</p>"
    each = -(-len(parts) // _BARS)
    groups = [parts[i : i + each] for i in range(0, len(parts), each)]
    bars = []
    for group in groups:
        rows = max(part.rows for part in group)
        bars.append((f"{group[0].name}{' ...' if each > 1 else ''}: {rows:,} rows", rows))
    mean = sum(part.rows for part in parts) / len(parts)
    low, high = min(part.rows for part in parts), max(part.rows for part in parts)
    many = f", {each} parts to a bar" if each > 1 else ""
    count = f"{len(parts):,} part{'s' * (len(parts) > 1)}"
    text = f"{count}{many}: {low:,} to {high:,} rows; the dashed line is the mean, {mean:,.1f}"
    plot = columns(f"Rows of {count}{many}", bars, high, mean)
    return f'{plot}<p class="where soft">{escape(text)}</p>'


def memory(workers: Sequence[Worker], planned: int | None) -> str:
    """Draw the peak of each process, the fullest first, beside what the plan said of it."""
    if not workers:
        return "<p>No process could be asked.</p>"
    ordered = sorted(workers, key=lambda worker: -worker.peak)
    base = max(worker.base for worker in workers)
    said = None if planned is None else base + planned
    span = max([ordered[0].peak, said or 0])
    rows = [(w.name, 0, w.peak, bytes_text(w.peak)) for w in ordered[:_LANES]]
    plot = tracks("Most memory that each process has held", rows, span, mark=said)
    told = [
        "" if said is None else f"The dashed line is what the plan said: {bytes_text(said)}.",
        "A peak counts from the start of its process, by VmHWM.",
        f"The {_LANES} fullest of {len(workers):,} are drawn." if len(workers) > _LANES else "",
    ]
    head = ("process", "before", "peak", "by the plan", "limit", "spilled", "pulled")
    lines = [
        (
            w.name,
            bytes_text(w.base),
            bytes_text(w.peak),
            "" if planned is None else bytes_text(w.base + planned),
            "" if w.limit is None else bytes_text(w.limit),
            bytes_text(w.spilled),
            bytes_text(w.pulled),
        )
        for w in ordered
    ]
    return f'{plot}<p class="where soft">{escape(" ".join(filter(None, told)))}</p>{table(head, lines)}'


def _phase_table(phases: Sequence[Phase]) -> str:
    rows = [
        (
            p.name,
            seconds_text(p.seconds),
            seconds_text(p.busy),
            f"{p.tasks:,}",
            "" if p.rows is None else f"{p.rows:,}",
            "" if p.nbytes is None else bytes_text(p.nbytes),
        )
        for p in phases
    ]
    return table(("phase", "from first to last", "busy", "tasks", "rows", "bytes"), rows)
