"""A model reads one copy of an answer; a program gets its whole shape where the manifest wants it."""

from pathlib import Path

from manifests.json_value import Json
from tests.portal.peers import Peer, opened

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


async def test_an_answer_is_one_text_unless_the_manifest_wants_its_whole_shape(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("lean", "whole")]
    for folder in folders:
        folder.mkdir()
    async with (
        opened(folders[0], {"store": Peer()}, server={"structured": False}) as lean,
        opened(folders[1], {"store": Peer()}, server={"structured": True}) as whole,
    ):
        for arguments in ANSWERS:
            one, both = await lean.call(**arguments), await whole.call(**arguments)
            assert (len(one.content), one.structured_content) == (1, None)
            assert both.structured_content is not None
            assert one.content == both.content or "background" in arguments
