"""Content blocks of a script are checked and counted before a client gets them."""

import pytest
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent

from manifests.json_value import Json
from portal.base.tokens import count_tokens
from portal.runs.content import ALLOWED, MAX_BLOCKS, content_blocks

PLENTY = 10_000
WORD: dict[str, Json] = {"type": "text", "text": "word"}
IMAGE: dict[str, Json] = {"type": "image", "data": "aGkh" * 10_000, "mimeType": "image/png"}


def test_content_is_passed_on_in_its_order() -> None:
    emitted = content_blocks([WORD, IMAGE, WORD], PLENTY)
    assert [type(block) for block in emitted.blocks] == [TextContent, ImageContent, TextContent]
    assert not emitted.notices


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
        ({"type": "resource", "resource": {"text": "x"}}, "resource.uri"),
        ({"type": "resource_link", "uri": "file:///x"}, "name"),
    ],
)
def test_what_is_no_content_is_left_out_and_told_with_its_fault_and_what_is_allowed(
    block: dict[str, Json], fault: str
) -> None:
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
    assert isinstance(one, ImageContent) and isinstance(other, EmbeddedResource)
    assert isinstance(other.resource, BlobResourceContents)
    assert one.data == other.resource.blob == "+/+/+/8="


def test_kind_of_a_data_url_is_taken_only_if_the_block_has_none() -> None:
    block = {"type": "image", "data": "data:image/gif;base64,aGk="}
    kinds = [
        each.model_dump()["mime_type"]
        for each in content_blocks([block, {**block, "mimeType": "image/png"}], PLENTY).blocks
    ]
    assert kinds == ["image/gif", "image/png"]


def test_text_counts_against_the_budget_and_images_do_not() -> None:
    emitted = content_blocks([WORD, IMAGE, WORD, WORD], 2 * count_tokens("word"))
    assert [type(block) for block in emitted.blocks] == [TextContent, ImageContent, TextContent]
    assert emitted.tokens == 2 * count_tokens("word")
    assert len(emitted.notices) == 1


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": {"uri": "file:///x", "text": "word " * 500}},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "description": "word " * 500},
        {"type": "resource", "resource": {"uri": "x:" + "word " * 500, "text": ""}},
        {"type": "resource", "resource": {"uri": "file:///x", "blob": "aGk=", "mimeType": "word " * 500}},
        {"type": "resource_link", "uri": "file:///x", "name": "x", "icons": [{"src": "word " * 500}]},
        {"type": "text", "text": "x", "_meta": {"data": "word " * 500}},
        {**IMAGE, "mimeType": "word " * 500},
    ],
)
def test_all_that_is_text_counts(block: dict[str, Json]) -> None:
    assert not content_blocks([block], 100).blocks
    assert content_blocks([block], PLENTY).tokens >= 500


def test_blocks_beyond_the_most_are_counted() -> None:
    emitted = content_blocks([WORD] * (MAX_BLOCKS + 5), PLENTY)
    assert len(emitted.blocks) == MAX_BLOCKS
    assert any("5" in notice for notice in emitted.notices)


@pytest.mark.parametrize(("data", "kept"), [("aGk=", 1), ("not base64!", 0), ("aGk", 0)])
def test_an_image_that_is_no_base64_is_left_out(data: str, kept: int) -> None:
    emitted = content_blocks([{"type": "image", "data": data, "mimeType": "image/png"}], 100)
    assert len(emitted.blocks) == kept
    assert len(emitted.notices) == 1 - kept
