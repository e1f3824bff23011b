"""A model reads one copy of an answer; a program gets its whole shape where the manifest wants it."""

from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Peer, opened, text_of

ANSWERS: list[dict[str, Json]] = [
    {"name": "execute_code", "code": "1 + 1"},
    {"name": "execute_code", "code": "1 / 0"},
    {"name": "execute_code", "code": "store.nothing()"},
    {"name": "execute_code", "code": 1},
    {"name": "execute_code", "code": "1", "background": True},
    {"name": "execute_code", "run": "run_0"},
    {"name": "docs_search", "query": "echo"},
    {"name": "docs_search", "limit": 0},
]


@pytest.mark.parametrize("is_whole", [False, True])
async def test_an_answer_is_one_text_unless_the_manifest_wants_its_whole_shape(
    is_whole: bool, tmp_path: Path
) -> None:
    async with opened(tmp_path, {"store": Peer()}, server={"structured": is_whole}) as portal:
        for arguments in ANSWERS:
            result = await portal.call(**arguments)
            assert len(result.content) == 1 and text_of(result)
            assert (result.structured_content is not None) is is_whole
