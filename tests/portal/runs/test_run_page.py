"""The page of a run tells when its calls worked and waited, and what they sent and got."""

from pathlib import Path

import pytest

from portal.base.errors import RunsError
from portal.runs.past import dump_chunk
from portal.runs.run_page import RunPage, run_page, state_words, without
from sandbox_runtime.recording import Event
from tests.portal.rows import opened
from tests.portal.stories import BEGAN, HOUR, Story, kept, night


def page_of(story: Story, seq: int | None = None) -> RunPage:
    return run_page(story.tables, story.run, seq)


def test_a_night_of_waiting_is_told_apart_from_the_work(tmp_path: Path) -> None:
    page = page_of(night(tmp_path).ended("error"))
    assert [round(ended - began) for began, ended in page.pauses] == [14 * HOUR, 1_200, 300, 240]
    assert page.outages == [page.pauses[-1]]
    assert [call.function for call in page.calls if not call.wait] == ["tickets.list"]
    assert [round(call.took, 3) for call in page.calls[:3]] == [0.1, 14 * HOUR + 0.1, 0.1]


def test_each_call_is_drawn_by_what_it_did_for_a_while(tmp_path: Path) -> None:
    calls = page_of(night(tmp_path).ended("error")).calls
    tones = [[stretch.tone for stretch in call.stretches] for call in calls]
    assert tones == [["done"], ["time"], ["person", "done"], ["person", "unknown"]]
    # What a portal sent and nobody saw the end of lasts until another one took the run up.
    assert round(calls[3].stretches[-1].ended - calls[3].stretches[-1].began) == 240


def test_a_wait_lasts_until_a_portal_goes_on_with_the_run(tmp_path: Path) -> None:
    story = Story(tmp_path, "await a.b()").asks("a.b").later(10).decided().later(HOUR).resumed().later(1)
    (call,) = page_of(story.answered("a.b", 1)).calls
    assert (round(call.waited), round(call.took)) == (HOUR + 10, 1)


def test_a_run_whose_portal_ended_is_down_until_another_one_takes_it_up(tmp_path: Path) -> None:
    story = night(tmp_path).later(9 * HOUR)
    assert (page_of(story).row.told, len(page_of(story).outages)) == ("running", 1)
    story.tables.holder = ""  # as whoever looks into the store that is left
    page = page_of(story)
    assert (page.row.told, page.outages[-1]) == ("waiting", (story.at - 9 * HOUR, story.at))
    assert page.pauses[-1] == page.outages[-1]


def test_work_beside_a_wait_is_no_pause(tmp_path: Path) -> None:
    story = Story(tmp_path, "...").asks("a.ask")
    story.call("b.slow", seconds=100).later(50)
    assert page_of(story).pauses == [(BEGAN + 100, BEGAN + 150)]


def test_a_call_that_asks_is_selected_before_one_that_failed(tmp_path: Path) -> None:
    story = Story(tmp_path, "...").call("a.bad", state="failed").asks("a.ask")
    assert page_of(story).selected.function == "a.ask"
    assert page_of(story, 1).selected.function == "a.bad"
    assert page_of(story, 99).selected.function == "a.ask"


def test_the_selected_call_has_what_it_sent_and_got_and_who_decided(tmp_path: Path) -> None:
    page = page_of(night(tmp_path), 3)
    assert (page.exchange.arguments, page.exchange.value) == ({"charge": "ch_1"}, {"paid": True})
    assert (page.selected.decided_by, page.selected.decision["reason"]) == ("console alice", "fine")
    assert page.exchange.shown["rule"] == "capabilities.tools.ask"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("x = 1\nawait a.b(1)", 2),
        ("for n in range(3):\n    await a.b(n)", 2),
        ("await a.b(1)\nawait a.b(2)", 0),
        ("f = a.b\nawait f(1)", 1),
        ("await aa.b(1)\nawait a.bb(2)", 0),
        ('# a.b\nx = """\na.b(0)"""\nawait a.b("\\d")', 4),
        ("# a\rawait a.b(1)\nawait a.b(1)", 0),
        (f"await a.b(1)\n{'#' * 20_000}", 0),
        *((text, 0) for text in ("a.b(" * 5_000, "-" * 9_999 + "a.b", "a.b\0")),
    ],
)
def test_a_call_has_the_only_line_that_names_its_function(tmp_path: Path, script: str, line: int) -> None:
    assert page_of(Story(tmp_path, script).call("a.b")).calls[0].line == line


def test_a_line_may_name_an_upstream_like_the_module_whose_name_it_has(tmp_path: Path) -> None:
    assert page_of(Story(tmp_path, "x = 1\nawait time.now()").call("time_.now")).calls[0].line == 2


@pytest.mark.parametrize("sent", ["1 a.b", "1 ", "x 1", "1 a.b " + "[" * 2_000])
def test_a_script_cannot_keep_its_page_from_being_shown(tmp_path: Path, sent: str) -> None:
    story = Story(tmp_path, "await a.b()").call("a.b")
    chunk = dump_chunk((Event("sent", sent),), ())
    with story.tables.transaction():
        story.tables.advance(story.run, story.epoch, chunk=chunk, n=2)
    assert page_of(story, 1).exchange.arguments is None


def test_what_is_sent_while_the_run_is_running_is_under_way(tmp_path: Path) -> None:
    story = Story(tmp_path, "...").call("a.b", state="unknown").later(5)
    (call,) = page_of(story).calls
    assert (call.state, call.ended) == ("running", BEGAN + 5)
    assert page_of(story.ended("cancelled")).calls[0].state == "unknown"


def test_a_run_of_the_trail_alone_has_its_calls_and_no_answer(tmp_path: Path) -> None:
    tables = opened(tmp_path)
    page = run_page(tables, kept(tables, 0, "", "error", [1, "a.b", "failed", 20.0, 30.0, "upstream_error"]))
    assert (page.answer, page.script, page.ended) == ({}, "", BEGAN + 0.06)
    assert (page.selected.code, round(page.selected.began - BEGAN, 3)) == ("upstream_error", 0.02)
    with pytest.raises(RunsError) as refused:
        run_page(tables, "run_2")
    assert refused.value.code == "unknown_run"


def test_a_run_that_waits_says_for_what() -> None:
    assert state_words("waiting", ["sleep", "ask"])[0] == "person"
    assert (
        state_words("waiting", ["sleep"]) != state_words("waiting", ["event"]) != state_words("waiting", [])
    )
    assert state_words("error", []) == ("error", "failed")


def test_intervals_are_united_and_cut() -> None:
    assert without([(5, 6), (0, 2), (1, 3), (3, 4)], []) == [(0, 4), (5, 6)]
    assert without([(0, 10), (1, 2)], [(2, 3), (9, 12), (9, 9)]) == [(0, 2), (3, 9)]
    assert without([(0, 1)], [(0, 1)]) == []
