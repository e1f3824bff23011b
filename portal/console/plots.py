"""Plots as SVG: positions in percent, so that texts are not distorted, and no styles, which the policy forbids.

They contain numbers and the names of states only, so nothing in them has to be escaped.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from portal.console.pages import span
from portal.records.store.trail import HistoryRow
from portal.runs.run_page import CallView, Interval, calls_in_list, without

_STEPS: Final = (
    *(n * 10**e for e in (-3, -2, -1, 0) for n in (1, 2, 5)),
    10,
    *(60 * n for n in (0.5, 1, 5, 10, 30, 60)),
)
_MOST_TICKS: Final = 5
_LEAST_FOLDED_SECONDS: Final = 0.6
_CHARACTER: Final = 2.0
"""The width of a character of the scale, in percent of the narrowest plot."""

_MAX_LANES: Final = 4
_ORDER: Final = ("done", "time", "not_started", "refused", "running", "person", "unknown", "failed")
"""Of the calls in a picture: what matters is drawn above the others."""


class Axis:
    """Maps the time of a run to percent. Pauses of more than a quarter of the work are folded into narrow bands.

    So two seconds of work stay readable beside a night of waiting. It is monotone, and linear between folds.
    """

    def __init__(self, began: float, ended: float, pauses: Sequence[Interval]) -> None:
        """`pauses` are in order, without overlaps."""
        self.began, self.ended = began, max(ended, began + 0.001)
        # The clocks of a store and of a portal may differ a little.
        pauses = [(max(a, began), min(b, self.ended)) for a, b in pauses]
        work = max(self.ended - began - sum(b - a for a, b in pauses), 0.001)
        least = max(work / 4, _LEAST_FOLDED_SECONDS)
        self.folds = [(a, b) for a, b in pauses if b - a > least]
        self.unfolded = max(self.ended - began - sum(b - a for a, b in self.folds), 1e-6)
        width = 44 / max(len(self.folds), 4)
        scale = (100 - width * len(self.folds)) / self.unfolded
        self._times, self._places = [began], [0.0]
        for a, b in self.folds:
            at = self._places[-1] + (a - self._times[-1]) * scale
            self._times += [a, b]
            self._places += [at, at + width]
        self._times.append(self.ended)
        self._places.append(100.0)

    def __call__(self, at: float) -> float:
        """The place of a time; those before the beginning and after the end are there."""
        at = min(max(at, self.began), self.ended)
        n = min(bisect_right(self._times, at), len(self._times) - 1)
        (a, b), (x, y) = self._times[n - 1 : n + 1], self._places[n - 1 : n + 1]
        return y if b <= a else min(y, x + (y - x) * (at - a) / (b - a))

    def ticks(self) -> list[tuple[float, float]]:
        """At most six round numbers of seconds, without folded time, with their places."""
        step = next((each for each in _STEPS if self.unfolded / each <= _MOST_TICKS), self.unfolded)
        found = list[tuple[float, float]]()
        for seconds in (step * n for n in range(int(self.unfolded / step) + 1)):
            at = self.began + seconds
            for a, b in self.folds:
                at += b - a if a < at else 0.0
            found.append((self(at), seconds))
        return found


def scale(axis: Axis, outages: Sequence[Interval]) -> Markup:
    """The labels above a timeline: the lengths of folds first, and round times where they leave room."""
    labels = [(axis((a + b) / 2), span(b - a, is_exact=False), _kind((a, b), outages)) for a, b in axis.folds]
    labels += [(at, span(seconds), "") for at, seconds in axis.ticks()]
    taken, texts = list[Interval](), list[str]()
    for at, text, kind in labels:
        width = len(text) * _CHARACTER
        left = at - width / 2 if at else 0.0
        if left < 0 or left + width > 103 or any(left < b + 0.5 and a < left + width + 0.5 for a, b in taken):
            continue
        taken.append((left, left + width))
        anchor = ' text-anchor="middle"' if at else ""
        texts.append(f'<text class="{kind}" x="{at:.2f}%" y="15"{anchor}>{text}</text>')
    return _svg("scale", 22, "".join(texts))


def grid(axis: Axis, outages: Sequence[Interval]) -> Markup:
    """What lies behind all rows of a timeline: ticks, folds, and lines where another portal took the run up."""
    parts = [_line("g", at) for at, _ in axis.ticks()]
    for began, ended in axis.folds:
        parts.append(_rect(_kind((began, ended), outages), axis(began), axis(ended), 0, "100%"))
        parts += [_line("tear", axis(began)), _line("tear", axis(ended))]
    parts += [_line("crash", axis(ended)) for _, ended in outages]
    return _svg("grid", "100%", "".join(parts))


def bar(calls: Sequence[CallView], axis: Axis) -> Markup:
    """One row of a timeline: a call, or all those that share the row. Waits are thinner than work."""
    if len(calls) > 1:
        last = max(call.ended for call in calls)
        return _svg("bar", 24, _rect(f"b-{calls[0].state} many", axis(calls[0].began), axis(last), 5, 14))
    parts = list[str]()
    for tone, began, ended in calls[0].stretches:
        y, height = (7, 10) if tone in ("person", "time") else (5, 14)
        parts.append(_rect(f"b-{tone}", axis(began), max(axis(ended), axis(began) + 0.6), y, height))
    return _svg("bar", 24, "".join(parts))


def picture(row: HistoryRow, now: float) -> Markup:
    """A run in a list: its calls by time, those beside each other in lanes."""
    ended = row.ended or now
    calls = calls_in_list(row, ended)
    busy = [(call.began, call.ended) for call in calls if not call.wait]
    axis = Axis(row.began, ended, without([(row.began, ended)], busy))
    placed, ends = list[tuple[int, CallView]](), list[float]()
    for call in calls:
        left, right = axis(call.began), axis(call.ended)
        lane = next((n for n, end in enumerate(ends) if end <= left + 0.6), len(ends))
        ends[lane : lane + 1] = [right]
        placed.append((lane % _MAX_LANES, call))
    lanes = min(len(ends) or 1, _MAX_LANES)
    thick = min(7.0, 21 / lanes - 1)
    shapes = defaultdict[str, str](str)
    for lane, call in placed:
        top = 10 + (thick + 1) * (lane - lanes / 2)
        for tone, began, ended in call.stretches:
            left, right = axis(began), max(axis(ended) - 0.3, axis(began) + 1)
            shapes[tone] += _box(left, right, top, top + thick)
    return _shapes("glyph", 20, "100 20", {"base": "M0 10H100", **{tone: shapes[tone] for tone in _ORDER}})


def columns(counts: Sequence[tuple[int, int]]) -> Markup:
    """How many of something there were, and how many of them were bad, in each of equal times."""
    most, good, bad = max([1, *(count for count, _ in counts)]), "", ""
    for n, (count, failed) in enumerate(counts):
        top, edge = 100 - 100 * count / most, 100 - 100 * failed / most
        good += _box(n + 0.1, n + 0.9, top, edge)
        bad += _box(n + 0.1, n + 0.9, edge, 100)
    return _shapes("cols", 124, f"{len(counts)} 100", {"done": good, "failed": bad})


def _box(left: float, right: float, top: float, bottom: float) -> str:
    return f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z" if top < bottom else ""


def _shapes(name: str, height: int, size: str, shapes: Mapping[str, str]) -> Markup:
    """A plot without texts, which may be distorted: one path of each class, the last one above the others."""
    paths = "".join(f'<path class="b-{tone}" d="{path}"/>' for tone, path in shapes.items() if path)
    return _svg(name, height, paths, f' viewBox="0 0 {size}" preserveAspectRatio="none"')


def _kind(pause: Interval, outages: Sequence[Interval]) -> str:
    return "down" if pause in outages else "fold"


def _svg(name: str, height: int | str, parts: str, box: str = "") -> Markup:
    size = f'width="100%" height="{height}"{box}'
    return Markup(f'<svg class="{name}" {size} aria-hidden="true">{parts}</svg>')


def _rect(name: str, left: float, right: float, y: float, height: float | str) -> str:
    place = f'x="{left:.1f}%" y="{y}" width="{right - left:.1f}%" height="{height}"'
    return f'<rect class="{name}" {place} rx="1.5"/>'


def _line(name: str, at: float) -> str:
    return f'<line class="{name}" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'
