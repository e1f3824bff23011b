"""Makes the objects in a component's image immortal, while the component is built.

Each use of a Python object counts its references and so writes to its memory, even if the count ends where it began.
An instance copies every page that it writes to. CPython does not count the references of immortal objects (PEP 683).
"""

from bisect import bisect_right
from collections.abc import Iterator

from sandbox_runtime.errors import BakeError

MARK = b"objects of image"
"""Starts the map that guest/warm_up.py leaves in the image: a bit for every four bytes of memory, set for an object.

Four bytes with the size of the map follow.
"""

_HEADER_BYTES = 8  # of a component, and of a core module
_CORE_MODULE, _DATA, _I32_CONST = 1, 11, 0x41
# The count is an object's first word, and this its highest byte.
_LEAST_IMMORTAL, _IMMORTAL_BYTE = 1 << 30, 0x50


def make_immortal(component: bytes) -> bytes:
    """The component with its objects made immortal. Raises BakeError: its image is not as expected."""
    changed = bytearray(component)
    segments = sorted(_segments(component))
    starts = [address for address, _, _ in segments]
    image = bytearray(max((address + size for address, _, size in segments), default=0))
    for address, at, size in segments:
        image[address : address + size] = component[at : at + size]
    if image.count(MARK) != 1:
        raise BakeError("the component's image has no map of its objects")
    for address in _addresses(image):
        count = int.from_bytes(image[address : address + 4], "little")
        if count == 0:
            raise BakeError(f"the component's image has no object at {address:#x}, where its map shows one")
        start, at, size = segments[bisect_right(starts, address + 3) - 1]
        if count < _LEAST_IMMORTAL and address + 3 < start + size:
            changed[at + address + 3 - start] = _IMMORTAL_BYTE
    return bytes(changed)


def _addresses(image: bytearray) -> Iterator[int]:
    """The addresses of the objects on the map."""
    start = image.index(MARK)
    head = len(MARK) + 4
    size = int.from_bytes(image[start + len(MARK) : start + head], "little")
    for place, bits in enumerate(image[start + head : start + size], start=head):
        yield from (place * 32 + bit * 4 for bit in range(8) if bits >> bit & 1)


def _segments(component: bytes) -> Iterator[tuple[int, int, int]]:
    """The active data segments of all core modules: address, offset in the component, and size."""
    for module, module_end in _sections(component, _HEADER_BYTES, len(component), _CORE_MODULE):
        for section, _ in _sections(component, module + _HEADER_BYTES, module_end, _DATA):
            count, at = _number(component, section)
            for _ in range(count):
                if component[at : at + 2] != bytes([0, _I32_CONST]):
                    raise BakeError("the component has a data segment of an unknown kind")
                address, at = _number(component, at + 2)
                size, at = _number(component, at + 1)
                yield address, at, size
                at += size


def _sections(component: bytes, at: int, end: int, kind: int) -> Iterator[tuple[int, int]]:
    """Start and end of the content of each section of a kind."""
    while at < end:
        size, start = _number(component, at + 1)
        if component[at] == kind:
            yield start, start + size
        at = start + size


def _number(component: bytes, at: int) -> tuple[int, int]:
    """The LEB128 number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = component[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
