"""What was left out of an answer, and the sentences that say so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

_MAX_KEY_CHARS = 40
_MAX_PATH_CHARS = 120

Path: TypeAlias = "tuple[Path, str | None] | tuple[()]"
"""Where a value sits, innermost key last; None stands for any item of a list."""

Kind = Literal["text", "items", "keys", "key", "depth", "number", "rows", "characters"]

_OF_WHOLE_VALUES: Final = {"items", "keys", "depth", "rows"}


@dataclass
class Cut:
    """All cuts of one kind in one place; values in different items of a list share their place."""

    path: Path
    kind: Kind
    kept: int = 0
    total: int = 0
    times: int = 0

    def add(self, kept: int, total: int) -> None:
        self.kept += kept
        self.total += total
        self.times += 1

    @property
    def weight(self) -> int:
        return self.total - self.kept

    def __str__(self) -> str:
        where = _written(self.path)
        left, total = f"{self.weight:,}", f"{self.total:,}"
        times = f" in {self.times:,} places" if self.times > 1 else ""
        match self.kind:
            case "text" if self.times == 1:
                return f"{where}: the first {self.kept:,} of {total} characters kept"
            case "text":
                return f"{where}: {left} of {total} characters left out{times}"
            case "key":
                return f"{where}: shown under a key without {left} of its {total} characters{times}"
            case "depth":
                return f"{where}: deeper levels left out{times}"
            case "number":
                return f"{where}: integers of {total} digits left out{times}"
            case "rows":
                return f"{where}: {total} rows summarised"
            case "characters":
                return f"{where}: characters that are not Unicode text replaced{times}"
        return f"{where}: {left} of {total} {self.kind} left out{times}"


def sentences(cuts: Sequence[Cut], limit: int) -> list[str]:
    """One for each of the largest cuts, and one for the number of the others; first those that left values out."""
    told = sorted(cuts, key=lambda cut: (cut.kind not in _OF_WHOLE_VALUES, -cut.weight))
    more = len(told) - limit
    others = [f"{more:,} more place{'s were' if more > 1 else ' was'} cut"] if more > 0 and limit else []
    return [*map(str, told[:limit]), *others]


def advice(cuts: Iterable[Cut], max_tokens: int) -> str:
    """What to do about the cuts. No commas in the number: a larger one must not take more tokens than it gives."""
    parts = ", ".join(dict.fromkeys(_root(cut.path) for cut in cuts))
    return (
        f"Cut to fit {max_tokens} tokens: {parts}. To see more, filter in the script and return less, "
        "or raise server.output_tokens."
    )


def _root(path: Path) -> str:
    return _keys(path)[0] or ""


def _written(path: Path) -> str:
    """`result.items[].body`; keys that are no identifiers are quoted, long ones and long paths shortened."""
    text = "".join("[]" if key is None else _step(key) for key in _keys(path)).lstrip(".")
    return text if len(text) <= _MAX_PATH_CHARS else text[:_MAX_PATH_CHARS] + "…"


def _step(key: str) -> str:
    if len(key) > _MAX_KEY_CHARS:
        key = f"{key[: _MAX_KEY_CHARS // 2]}…{key[-_MAX_KEY_CHARS // 2 :]}"
    return f".{key}" if key.isidentifier() else f"[{key!r}]"


def _keys(path: Path) -> list[str | None]:
    keys = []
    while path:
        path, key = path
        keys.append(key)
    return keys[::-1]
