"""The heap of the image without holes, so that what a run allocates lies side by side, on few pages.

Building leaves thousands of free blocks behind on as many pages, and the allocator gives those away before it takes new
memory. Every page that an instance writes to is copied for it, so they are filled for good
(`python -m benchmarks.sandbox` counts the pages).
"""

_SIZES = (*range(1 << 16, 1 << 12, -1 << 10), *range(1 << 12, 1 << 4, -8))
_HEADER = b"".__sizeof__()
_LARGER_THAN_ANY_HOLE = 1 << 20


def fill() -> list[object]:
    """What is returned has to be kept.

    From large to small: a block above all that was ever allocated shows that no hole of its size is left.
    """
    top = id(bytes(_LARGER_THAN_ANY_HOLE))
    kept: list[object] = []
    for size in _SIZES:
        _fill(kept, size, top)
    _fill(kept, 0, top)
    return kept


def _fill(kept: list[object], size: int, top: int) -> None:
    block: object = None
    while id(block) < top:
        block = bytes(size - _HEADER) if size else object()
        kept.append(block)
