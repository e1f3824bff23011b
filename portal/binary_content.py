"""Images and audio in the value of a script, of which a model would read base64 in vain: `portal.emit` shows them."""

from typing import Final, TypeAlias

from manifests.json_value import Json

_FEW_CHARACTERS: Final = 200
"""So much of it does no harm."""
_MOST_VALUES: Final = 10_000
_MOST_DEPTH: Final = 20
"""No more of a value are looked at. What else there is is cut as any text is."""
_MOST_TOLD: Final = 3

_Path: TypeAlias = "tuple[_Path, int | str] | None"
"""Where a value stands, the innermost key or index last; None is the whole."""


def without_binaries(value: Json) -> tuple[Json, list[str]]:
    """The value without the data of its content blocks, and a notice that says what to do about it.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    reading = _Reading()
    shown = reading.shown(value, None, 0)
    if not reading.left_out:
        return value, []
    more = ", ..." if len(reading.left_out) > _MOST_TOLD else ""
    notice = (
        f"base64 was left out, which tells a model nothing: {', '.join(reading.left_out[:_MOST_TOLD])}{more}. "
        "Hand such a block to `portal.emit(block)` in the script: then it is in the answer, to be seen."
    )
    return shown, [notice]


class _Reading:
    def __init__(self) -> None:
        self.left_out: list[str] = []
        """Where blocks stand, and what they are."""
        self._values = 0

    def shown(self, value: Json, path: _Path, depth: int) -> Json:
        """The value itself where nothing of it is left out: that is nearly always so, and some are large."""
        self._values += 1
        if not isinstance(value, list | dict) or depth > _MOST_DEPTH:
            return value
        if isinstance(value, dict) and (key := _binary(value)):
            self.left_out.append(f"{_written(path)} ({str(value['mimeType'])[:100]})")
            return {**value, key: f"[{len(str(value[key])):,} characters of base64]"}
        changed: dict[int | str, Json] = {}
        for name, item in enumerate(value) if isinstance(value, list) else value.items():
            if self._values >= _MOST_VALUES:
                break
            told = self.shown(item, (path, name), depth + 1)
            if told is not item:
                changed[name] = told
        if not changed:
            return value
        if isinstance(value, list):
            return [changed.get(index, item) for index, item in enumerate(value)]
        return {name: changed.get(name, item) for name, item in value.items()}


def _written(path: _Path) -> str:
    if path is None:
        return "result"
    outer, name = path
    shown = name[:40] if isinstance(name, str) else name
    return f"{_written(outer)}[{shown!r}]"


def _binary(value: dict[str, Json]) -> str:
    """The key under which a content block, or the contents of a resource, has much base64; "" if it is neither."""
    key = "data" if value.get("type") in ("image", "audio") else "blob" if "uri" in value else ""
    data = value.get(key)
    is_much = isinstance(data, str) and len(data) > _FEW_CHARACTERS
    return key if is_much and isinstance(value.get("mimeType"), str) else ""
