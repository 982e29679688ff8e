"""The report of a job as one HTML page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from distsort.report import Part, Phase, Report, bytes_text, seconds_text

_WIDTH = 860
_LABEL = 90
_ROW = 26
_BARS = 120
_CHART = 150

_STYLE = """
:root { --ink: #1c2330; --soft: #667085; --line: #d9dee7; --fill: #2f6fde; --page: #ffffff; --mark: #c2410c }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #344054; --fill: #6ea0f5; --page: #14181f; --mark: #fb923c } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 860px;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.35rem; margin: 0 } h2 { font-size: 1rem; margin: 2rem 0 .5rem }
p.where { color: var(--soft); margin: .2rem 0 1rem; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 1rem; margin: 1rem 0 }
dt { color: var(--soft); font-size: .85rem } dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { font-weight: 500; color: var(--soft) } td { border-top: 1px solid var(--line) }
th, td { text-align: right; padding: .25rem .5rem; white-space: nowrap }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
svg { width: 100%; height: auto; display: block; margin: .5rem 0 }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif }
svg .soft { fill: var(--soft) } svg rect { fill: var(--fill) } svg line { stroke: var(--line) }
svg .mean { stroke: var(--mark); stroke-dasharray: 4 3 } svg .meantext { fill: var(--mark) }
pre { background: color-mix(in srgb, var(--line) 35%, transparent); padding: .75rem; overflow-x: auto; font-size: 13px }
"""


def page(report: Report) -> str:
    """Return a report as a page.

    Parameters
    ----------
    report
        Of a job that is done.
    """
    facts = {
        "rows": f"{report.rows:,}",
        "time": seconds_text(report.seconds),
        "rows a second": f"{report.rows / report.seconds:,.0f}" if report.seconds > 0 else "",
        "in memory": bytes_text(report.nbytes),
        "stored, in": bytes_text(report.stored_in),
        "stored, out": bytes_text(report.stored_out),
        "largest part / mean": f"{report.balance:.4f}",
        "peak of this process": bytes_text(report.peak_memory),
        "spilled": bytes_text(report.spilled),
    }
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    body = [
        f"<h1>Sorted {report.rows:,} rows in {seconds_text(report.seconds)}</h1>",
        f'<p class="where">by {escape(report.order)}, on {escape(report.scheduler)}, to {escape(report.output)}</p>',
        f"<dl>{cells}</dl>",
        f"<h2>Phases</h2>{timeline(report.phases, report.seconds)}",
        f'<div class="scroll">{_phase_table(report.phases)}</div>',
        f"<h2>Rows of each part</h2>{balance(report.parts)}",
        f"<h2>Plan</h2><pre>{escape(report.plan)}</pre>",
        f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        f"<p>Checked before it was published: the order within and between parts, the row count, and the checksum of "
        f"whole rows, <code>{escape(report.checksum)}</code>.</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>distsort: {report.rows:,} rows</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def timeline(phases: Sequence[Phase], seconds: float) -> str:
    """Draw when each phase ran, as SVG."""
    span = max([seconds, *(phase.stop for phase in phases)], default=0.0) or 1.0
    scale = (_WIDTH - _LABEL - 70) / span
    height = _ROW * len(phases) + 24
    marks = []
    step = _nice(span / 5)
    for number in range(int(span / step) + 1):
        x = _LABEL + number * step * scale
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20}"/>'
            f'<text class="soft" x="{x:.1f}" y="{height - 4}" text-anchor="middle">'
            f"{seconds_text(number * step) if number else '0'}</text>"
        )
    for number, phase in enumerate(phases):
        y = number * _ROW
        x, wide = _LABEL + phase.start * scale, max(phase.seconds * scale, 1.5)
        marks.append(
            f'<text x="0" y="{y + 17}">{escape(phase.name)}</text>'
            f'<rect x="{x:.1f}" y="{y + 5}" width="{wide:.1f}" height="{_ROW - 10}" rx="2"/>'
            f'<text class="soft" x="{x + wide + 6:.1f}" y="{y + 17}">{seconds_text(phase.seconds)}</text>'
        )
    label = "Start and end of each phase"
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(marks)}</svg>'


def balance(parts: Sequence[Part]) -> str:
    """Draw the rows of each part as SVG; neighbours share a bar, by their largest, where there are many."""
    if not parts:
        return "<p>No parts.</p>"
    each = -(-len(parts) // _BARS)
    tops = [max(part.rows for part in parts[i : i + each]) for i in range(0, len(parts), each)]
    mean = sum(part.rows for part in parts) / len(parts)
    top = max([*tops, 1])
    left = 80
    wide = (_WIDTH - left) / len(tops)
    bars = []
    for number, rows in enumerate(tops):
        height = rows / top * _CHART
        name = parts[number * each].name + (" ..." if each > 1 else "")
        bars.append(
            f'<rect x="{left + number * wide:.1f}" y="{20 + _CHART - height:.1f}" width="{max(wide - 2, 0.5):.1f}" '
            f'height="{height:.1f}"><title>{escape(name)}: {rows:,} rows</title></rect>'
        )
    y = 20 + _CHART - mean / top * _CHART
    bars.append(
        f'<line class="mean" x1="{left}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="meantext" x="{left}" y="{y - 5:.1f}">mean {mean:,.1f}</text>'
        f'<text class="soft" x="{left - 8}" y="{24 + _CHART}" text-anchor="end">0</text>'
        f'<text class="soft" x="{left - 8}" y="24" text-anchor="end">{top:,}</text>'
    )
    many = f", {each} parts to a bar" if each > 1 else ""
    label = f"Rows of {len(parts)} parts{many}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_CHART + 30}" role="img" aria-label="{label}">{"".join(bars)}</svg>'
        f'<p class="where">{len(parts):,} parts{many}</p>'
    )


def _phase_table(phases: Sequence[Phase]) -> str:
    rows = "".join(
        f"<tr><td>{escape(p.name)}</td><td>{seconds_text(p.seconds)}</td><td>{seconds_text(p.busy)}</td>"
        f"<td>{p.tasks:,}</td><td>{'' if p.rows is None else f'{p.rows:,}'}</td>"
        f"<td>{'' if p.nbytes is None else bytes_text(p.nbytes)}</td></tr>"
        for p in phases
    )
    head = "".join(f"<th>{name}</th>" for name in ("phase", "from first to last", "busy", "tasks", "rows", "bytes"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)
