"""The axis of a run folds what it only waited, and keeps the rest in order and to scale."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from portal.console.plots import Axis, bar, columns, grid, picture, scale
from portal.console.runs import MAX_ROWS, timeline
from portal.records.store.trail import HistoryRow
from portal.runs.run_page import CallView, run_page, without
from tests.portal.stories import Story, night

PLOT_PIXELS = 266
"""The width of the timeline in a window of 1,280."""

times = st.floats(0, 1e6)
pauses = st.lists(st.tuples(times, times).map(sorted).map(tuple), max_size=60).map(
    lambda spans: without(spans, ())
)


def axis_of(story: Story) -> tuple[Axis, list[tuple[float, float]]]:
    page = run_page(story.tables, story.run)
    return Axis(page.row.began, page.ended, page.pauses), page.outages


def widths(svg: str, of: str) -> list[float]:
    return [float(width) for width in re.findall(rf'class="{of}"[^>]*? width="([\d.]+)%"', svg)]


@given(pauses, st.lists(times, min_size=2, max_size=20))
@example([(0.0, 541248.2314743395)], [0.0, 1e6])  # not 100.00000000000001
def test_a_later_time_is_never_further_left(pauses: list[tuple[float, float]], at: list[float]) -> None:
    axis = Axis(0.0, 1e6, pauses)
    places = [axis(each) for each in sorted(at)]
    assert places == sorted(places)
    assert {0 <= place <= 100 for place in places} == {True}
    assert (axis(-1), round(axis(2e6))) == (0, 100)


@given(pauses)
def test_folds_leave_most_of_the_plot_to_the_work(pauses: list[tuple[float, float]]) -> None:
    axis = Axis(0.0, 1e6 + 1, pauses)
    assert sum(axis(ended) - axis(began) for began, ended in axis.folds) < 44.1
    assert len(axis.ticks()) <= 6
    assert [seconds for _, seconds in axis.ticks()] == sorted(seconds for _, seconds in axis.ticks())


def test_work_of_100_ms_is_seen_beside_a_night(tmp_path: Path) -> None:
    story = night(tmp_path).ended("error")
    axis, outages = axis_of(story)
    calls = run_page(story.tables, story.run).calls
    for call in (calls[0], calls[2]):
        assert widths(bar([call], axis), "b-done")[0] * PLOT_PIXELS / 100 >= 20
    drawn = grid(axis, outages)
    assert (len(widths(drawn, "fold")), len(widths(drawn, "down")), drawn.count('"crash"')) == (3, 1, 1)
    assert all(label in scale(axis, outages) for label in (">14 h<", ">20 min<", ">5 min<", ">4 min<"))


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    story = Story(tmp_path, "...").call("a.b", seconds=1)
    for _ in range(20):
        story.asks("a.c").later(4_000).decided().resumed().later(0.01).answered("a.c")
    labels = re.findall(r'x="([\d.]+)%"[^>]*>([^<]+)<', scale(*axis_of(story)))
    places = sorted(float(at) for at, _ in labels)
    assert all(b - a >= 2 for a, b in pairwise(places))


def test_calls_beside_each_other_are_in_lanes_and_what_is_bad_is_drawn_last() -> None:
    listed = [[n, "a.b", "failed" if n == 1 else "done", n // 3 * 1e3, 1e3, ""] for n in range(6)]
    row = HistoryRow("run_1", "local", "ok", "", 0.0, ended=2.0)
    drawn = picture(replace(row, listed=listed), 2.0)
    assert re.findall('class="b-([a-z]+)"', drawn) == ["base", "done", "failed"]
    assert len({*re.findall(r"M[\d.]+ (-?[\d.]+)H", drawn.partition("b-done")[2])}) == 3
    assert 'class="b-done"' not in picture(row, 2.0)


def test_columns_are_as_high_as_their_counts() -> None:
    drawn = columns([(4, 1), (0, 0), (2, 2)])
    assert re.findall(r'b-(\w+)" d="([^"]+)"', drawn) == [
        ("done", "M0.1 0.0H0.9V75.0H0.1z"),
        ("failed", "M0.1 75.0H0.9V100.0H0.1zM2.1 50.0H2.9V100.0H2.1z"),
    ]


def test_a_timeline_folds_what_was_just_done_if_there_are_too_many_calls() -> None:
    calls = [CallView(n, f"a.f{n % 2}", "failed" if n == 500 else "done", n, n + 1) for n in range(1, 1_001)]
    rows = timeline(calls, calls[7])
    assert sorted(len(row) for row in rows) == [1, 1, 498, 500]
    assert len(timeline(calls[:MAX_ROWS], None)) == MAX_ROWS
    failed = [CallView(n, "a.b", "failed", n, n + 1) for n in range(1, 1_001)]
    assert len(timeline(failed, None)) == MAX_ROWS + 1
