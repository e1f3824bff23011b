"""Content blocks of a script are checked and counted; base64 in its value, which a model reads in vain, is left out."""

import threading
from functools import cache
from pathlib import Path

import pytest
from mcp_types import ImageContent, TextContent

from manifests.json_value import Json
from portal.base import tokens
from portal.base.tokens import count_tokens
from portal.runs.answer import Answer, fitted
from portal.runs.content import ALLOWED, MAX_SENT_BLOCKS, content_blocks, without_binaries
from tests.portal.peers import opened

PLENTY = 10_000
WORD: dict[str, Json] = {"type": "text", "text": "word"}
DATA = "aGVsbG8h" * 1_000
IMAGE: dict[str, Json] = {"type": "image", "data": DATA, "mimeType": "image/png"}


@pytest.mark.parametrize(("words", "notices"), [(PLENTY, 0), (2, 1)])
def test_content_keeps_its_order_and_text_counts(words: int, notices: int) -> None:
    emitted = content_blocks([WORD, IMAGE, WORD, *[WORD] * notices], words * count_tokens("word"))
    assert [type(block) for block in emitted.blocks] == [TextContent, ImageContent, TextContent]
    assert emitted.tokens == 2 * count_tokens("word")
    assert len(emitted.notices) == notices


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ({}, "type"),
        ({"type": "text"}, "text"),
        ({"type": "text", "text": 5}, "text"),
        ({"type": "image", "data": "aGk="}, "mimeType"),
        ({"type": "image", "data": [104], "mimeType": "image/png"}, "data"),
        ({"type": "video", "data": "aGk=", "mimeType": "video/mp4"}, "'video'"),
        ({"type": ["text"], "text": "x"}, "type"),
        ({"type": "image", "data": "not base64!", "mimeType": "image/png"}, "data"),
        ({"type": "resource", "resource": {"text": "x"}}, "resource.uri"),
        ({"type": "resource_link", "uri": "file:///x"}, "name"),
    ],
)
def test_what_is_no_content_is_left_out_and_told_with_its_fault(block: dict[str, Json], fault: str) -> None:
    emitted = content_blocks([block, WORD], PLENTY)
    assert len(emitted.blocks) == 1
    (notice,) = emitted.notices
    told, allowed, _ = notice.partition(ALLOWED)
    assert (fault in told, bool(allowed)) == (True, True)


@pytest.mark.parametrize(
    "data",
    ["+/+/\r\n+/8=\n", "-_-_-_8", "-_-_-_8=", "data:image/png;base64,+/+/+/8=", " DATA:;x=1;base64,+/+/+/8="],
)
def test_base64_that_is_wrapped_url_safe_or_a_data_url_is_mended(data: str) -> None:
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    held = {"type": "resource", "resource": {"uri": "file:///x", "blob": data}}
    one, other = content_blocks([image, held], PLENTY).blocks
    assert one.data == other.resource.blob == "+/+/+/8="


def test_kind_of_a_data_url_is_taken_only_if_the_block_has_none() -> None:
    block = {"type": "image", "data": "data:image/gif;base64,aGk="}
    blocks = content_blocks([block, {**block, "mimeType": "image/png"}], PLENTY).blocks
    assert [each.model_dump()["mime_type"] for each in blocks] == ["image/gif", "image/png"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": {"uri": "file:///x", "text": "word " * 500}},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "description": "word " * 500},
        {"type": "resource", "resource": {"uri": "x:" + "word " * 500, "text": ""}},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "icons": [{"src": "word " * 500}]},
        {"type": "text", "text": "x", "_meta": {"data": "word " * 500}},
        {**IMAGE, "mimeType": "word " * 500},
    ],
)
def test_all_that_is_text_counts(block: dict[str, Json]) -> None:
    assert not content_blocks([block], 100).blocks
    assert content_blocks([block], PLENTY).tokens >= 500


def test_blocks_beyond_the_most_are_counted() -> None:
    emitted = content_blocks([WORD] * (MAX_SENT_BLOCKS + 5), PLENTY)
    assert len(emitted.blocks) == MAX_SENT_BLOCKS
    assert any("5" in notice for notice in emitted.notices)


def test_image_in_a_value_is_left_out_and_told() -> None:
    answer = Answer("ok", run_id="run_1", result=["a cat", IMAGE])
    told = fitted(answer, str, 6_000, 6_000, is_whole=False).text
    assert told["result"] == ["a cat", {**IMAGE, "data": "[8,000 characters of base64]"}]
    (notice,) = told["notices"]
    assert "result[1] (image/png)" in notice and "portal.emit(block)" in notice
    assert DATA not in str(told)


DOCUMENT: Json = {"uri": "x:y", "blob": DATA, "mimeType": "application/pdf"}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"type": "audio", "data": DATA, "mimeType": "audio/wav"}, "result (audio/wav)"),
        ({"cats": [IMAGE]}, "result['cats'][0] (image/png)"),
        ({"type": "resource", "resource": DOCUMENT}, "result['resource'] (application/pdf)"),
    ],
)
def test_base64_is_left_out_wherever_it_stands(value: Json, where: str) -> None:
    shown, (notice,) = without_binaries(value)
    assert DATA not in str(shown) and where in notice


@pytest.mark.parametrize(
    "value",
    [
        {**IMAGE, "data": "aGVsbG8h"},
        {"type": "row", "data": DATA, "mimeType": "image/png"},
        {"type": "image", "data": DATA},
        {"uri": "x:y", "text": DATA, "mimeType": "text/plain"},
        {"blob": DATA, "mimeType": "text/plain"},
        [DATA] * 3,
    ],
)
def test_all_else_stays(value: Json) -> None:
    assert without_binaries(value) == (value, [])


async def test_a_first_block_does_not_hold_the_loop_while_the_encoding_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[threading.Thread]()
    load = tokens._loaded.__wrapped__
    monkeypatch.setattr(
        tokens, "_loaded", cache(lambda: (threads.append(threading.current_thread()), load())[-1])
    )
    async with opened(tmp_path, {}) as portal:
        await portal.run("portal.emit({'type': 'text', 'text': 'hi'})")
    assert threads and threading.main_thread() not in threads
