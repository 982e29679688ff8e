"""Pieces of HTML that the report's page, the exchange's page and the representations in notebooks are made of.

They need nothing else, no script, no font, no other file, and take over the colours of what is around them, so that
they can be read on light and on dark ground. Sizes of bars are shares of their lane: a page that is narrow keeps its
letters. Every text is escaped here; what `table` and `tracks` are given is text, never markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

STYLE = """
.distsort { font: 14px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; max-width: 860px }
.distsort h1 { font-size: 1.35rem; margin: 0 } .distsort h2 { font-size: 1rem; margin: 2rem 0 .5rem }
.distsort .soft, .distsort dt, .distsort th { opacity: .68; font-weight: 400 }
.distsort .where { margin: .2rem 0 1rem; overflow-wrap: anywhere }
.distsort dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem;
  margin: .8rem 0 }
.distsort dt { font-size: .85rem } .distsort dd { margin: 0; font-size: 1.1rem }
.distsort dl.lines { grid-template-columns: fit-content(30%) 1fr; gap: .15rem .8rem }
.distsort dl.lines dt, .distsort dl.lines dd { font-size: inherit; overflow-wrap: anywhere }
.distsort .scroll { overflow-x: auto }
.distsort table { font: inherit; color: inherit; border-collapse: collapse; width: 100%; margin: .5rem 0 }
.distsort th, .distsort td { text-align: right; padding: .25rem .5rem; white-space: nowrap }
.distsort td { border-top: 1px solid color-mix(in srgb, currentColor 18%, transparent) }
.distsort th:first-child, .distsort td:first-child { text-align: left; padding-left: 0 }
.distsort .lanes { display: grid; grid-template-columns: fit-content(40%) 1fr fit-content(35%); gap: 0 .6rem;
  align-items: center }
.distsort .lanes > span:first-child { overflow-wrap: anywhere }
.distsort .lane { position: relative; height: 1.5rem;
  background: color-mix(in srgb, currentColor 6%, transparent) }
.distsort .lane i { position: absolute; top: .25rem; bottom: .25rem; min-width: 2px; border-radius: 2px;
  background: #4a86e8 }
.distsort .lane u { position: absolute; top: 0; bottom: 0; border-left: 2px dashed #d9662b }
.distsort .axis { position: relative; height: 1.3rem; font-size: .8rem }
.distsort .axis b { position: absolute; transform: translateX(-50%); font-weight: 400; white-space: nowrap }
.distsort .columns { position: relative; height: 9rem; display: flex; gap: 1px; align-items: flex-end;
  border-bottom: 1px solid color-mix(in srgb, currentColor 40%, transparent) }
.distsort .columns i { flex: 1 1 0; min-width: 0; max-width: 5rem; background: #4a86e8; border-radius: 1px 1px 0 0 }
.distsort .columns u { position: absolute; left: 0; right: 0; border-top: 2px dashed #d9662b }
.distsort pre { background: color-mix(in srgb, currentColor 7%, transparent); color: inherit; padding: .75rem;
  overflow-x: auto; font-size: 13px }
"""


def fragment(*pieces: str) -> str:
    """Return pieces with their style: what a notebook shows."""
    return f'<div class="distsort"><style>{STYLE}</style>{"".join(pieces)}</div>'


def document(title: str, *pieces: str, head: str = "") -> str:
    """Return pieces as a page of its own, light or dark as the reader has it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}'
        f"<title>{escape(title)}</title><style>:root {{ color-scheme: light dark }} "
        f"body {{ max-width: 860px; margin: 2rem auto; padding: 0 1rem }}{STYLE}</style></head>\n"
        '<body class="distsort">\n' + "\n".join(pieces) + "\n</body></html>\n"
    )


def heading(text: str, where: str = "") -> str:
    """Return a title and, below it, a line that says of what."""
    return f"<h1>{escape(text)}</h1>" + (f'<p class="where soft">{escape(where)}</p>' if where else "")


def facts(values: Mapping[str, str]) -> str:
    """Return names and values side by side, as many as fit in a line; what is empty is left out.

    Examples
    --------
    >>> facts({"rows": "7", "spilled": ""})
    '<dl><div><dt>rows</dt><dd>7</dd></div></dl>'
    """
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items() if value)
    return f"<dl>{''.join(cells)}</dl>"


def definitions(values: Iterable[tuple[str, str]]) -> str:
    """Return names and texts, one below the other; the texts may be long.

    Examples
    --------
    >>> definitions([("runs", "4 & more")])
    '<dl class="lines"><dt>runs</dt><dd>4 &amp; more</dd></dl>'
    """
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in values)
    return f'<dl class="lines">{lines}</dl>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls by itself where it is too wide."""
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def tracks(
    label: str,
    rows: Iterable[tuple[str, float, float, str]],
    span: float,
    *,
    mark: float | None = None,
    ticks: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw bars from left to right, one to a line.

    Parameters
    ----------
    label
        What the drawing shows, for those who do not see it.
    rows
        Name, start and stop of each bar, and what stands behind it.
    span
        What the whole width stands for.
    mark
        Where each lane gets a dashed line.
    ticks
        Places below the lanes, each with its text.
    """
    span = span or 1.0
    line = "" if mark is None else f'<u style="left:{_share(mark, span)}"></u>'
    lanes = ""
    for name, start, stop, text in rows:
        bar = f'<i style="left:{_share(start, span)};width:{_share(stop - start, span)}"></i>' if stop > 0 else ""
        lanes += f'<span>{escape(name)}</span><span class="lane">{bar}{line}</span>'
        lanes += f'<span class="soft">{escape(text)}</span>'
    marks = "".join(f'<b style="left:{_share(place, span)}">{escape(text)}</b>' for place, text in ticks)
    axis = f'<span></span><span class="axis soft">{marks}</span><span></span>' if marks else ""
    return f'<div class="lanes" role="img" aria-label="{escape(label)}">{lanes}{axis}</div>'


def columns(label: str, values: Sequence[tuple[str, float]], top: float, mark: float) -> str:
    """Draw bars that stand side by side, with a dashed line at a height.

    Parameters
    ----------
    label
        What the drawing shows.
    values
        Name and height of each bar.
    top
        What the whole height stands for.
    mark
        Height of the line.
    """
    top = top or 1.0
    bars = "".join(f'<i style="height:{_share(v, top)}" title="{escape(name)}"></i>' for name, v in values)
    line = f'<u style="bottom:{_share(mark, top)}"></u>'
    return f'<div class="columns" role="img" aria-label="{escape(label)}">{bars}{line}</div>'


def round_steps(span: float, count: int = 5) -> list[float]:
    """Return places from 0 to at most `span`, about `count` steps apart, at round numbers.

    Examples
    --------
    >>> round_steps(1.1), round_steps(0)
    ([0.0, 0.5, 1.0], [0.0])
    """
    if span <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= span / count)
    return [number * step for number in range(int(span / step) + 1)]


def _share(value: float, whole: float) -> str:
    return f"{100 * min(max(value / whole, 0.0), 1.0):.3f}%"
