"""The build makes the objects of the image immortal, and nothing else."""

import pytest

from manifests.json_value import Json
from sandbox_runtime.errors import BakeError
from sandbox_runtime.image import MARK, make_immortal
from tests.sandbox_runtime.running import Runner

OBJECT, IMMORTAL_OBJECT = 1280, 1344
MAP_AT = 4096


def component(counts: dict[int, int], mapped: list[int]) -> bytes:
    """A component with one core module, whose memory has `counts` at their addresses, and a map of objects."""
    places = bytearray(64)
    for address in mapped:
        places[address // 32] |= 1 << (address % 32 // 4)
    places[: len(MARK) + 4] = MARK + len(places).to_bytes(4, "little")
    contents = {address: count.to_bytes(4, "little") for address, count in counts.items()}
    contents[MAP_AT] = bytes(places) + b"no part of the map"
    segments = b"".join(
        bytes([0, 0x41, *leb(address), 0x0B, *leb(len(content))]) + content
        for address, content in contents.items()
    )
    data = section(11, bytes(leb(len(contents))) + segments)
    return (
        b"\0asm\x0d\0\1\0" + section(1, b"\0asm\1\0\0\0" + section(10, b"code") + data) + section(0, b"end")
    )


def section(kind: int, content: bytes) -> bytes:
    return bytes([kind, *leb(len(content))]) + content


def leb(number: int) -> list[int]:
    return [number & 0x7F | 0x80, *leb(number >> 7)] if number > 0x7F else [number]


def test_only_objects_on_the_map_become_immortal() -> None:
    others = {1312: 1, 1408: 5}
    given = component({OBJECT: 3, IMMORTAL_OBJECT: 7 << 28, **others}, [OBJECT, IMMORTAL_OBJECT])
    expected = component(
        {OBJECT: 3 + (5 << 28), IMMORTAL_OBJECT: 7 << 28, **others}, [OBJECT, IMMORTAL_OBJECT]
    )
    assert make_immortal(given) == expected


@pytest.mark.parametrize(
    "given",
    [component({OBJECT: 0}, [OBJECT]), component({}, []).replace(MARK, bytes(16)), b"\0asm\x0d\0\1\0"],
)
def test_unexpected_image_fails_the_build(given: bytes) -> None:
    with pytest.raises(BakeError, match="image has no"):
        make_immortal(given)


@pytest.mark.anyio
async def test_objects_of_the_library_are_immortal_and_those_of_scripts_are_not(run: Runner) -> None:
    script = (
        "import json, sys\nown = [json]\n[sys._is_immortal(each) for each in (json.dumps, json.__doc__, own)]"
    )
    expected: Json = [True, True, False]
    assert (await run(script)).value == expected
