"""Tables of Codex's configuration put into the text and taken out of it; whatever else stands there stays as it is."""

import json
from collections.abc import Collection, Mapping, Sequence

from manifests.json_value import Json
from portal.client_files.json_edit import CannotEditError
from portal.client_files.json_text import BOM
from portal.client_files.toml_text import Table, TomlTextError, read_toml, tables


def table_texts(text: str, key: str, names: Collection[str]) -> dict[str, str]:
    """The tables of each of the servers, as they are written, with those inside of them."""
    lines = text.removeprefix(BOM).splitlines(keepends=True)
    spans = _spans(text, key, names)
    return {name: "".join("".join(lines[span]) for span in found) for name, found in spans.items()}


def without_tables(text: str, key: str, names: Collection[str]) -> str:
    """
    Raises:
        CannotEditError: They are not written as tables of their own.
    """
    lines = text.removeprefix(BOM).splitlines(keepends=True)
    spans = [span for found in _spans(text, key, names).values() for span in found]
    for span in sorted(spans, key=lambda each: -each.start):
        del lines[span]
    changed = (BOM if text.startswith(BOM) else "") + "".join(lines)
    before = read_toml(text)
    servers = {name: value for name, value in before.get(key, {}).items() if name not in names}
    # The table of all servers may be gone with the last of them.
    expected = [{**before, key: servers}, {k: v for k, v in before.items() if k != key or servers}]
    try:
        is_right = read_toml(changed) in expected
    except TomlTextError:
        is_right = False
    if not is_right:
        raise CannotEditError("its servers are not written as tables of their own ([mcp_servers.NAME])")
    return changed


def with_tables(text: str, key: str, texts: Mapping[str, str]) -> str:
    """The text with the tables, as they are to be written, at its end.

    Raises:
        CannotEditError: Something else would change, too.
    """
    line_end = "\r\n" if "\r\n" in text else "\n"
    changed = text
    for added in texts.values():
        if changed.removeprefix(BOM).strip():
            changed += line_end if changed.endswith("\n") else line_end * 2
        changed += added.replace("\r\n", "\n").replace("\n", line_end)
    before = read_toml(text)
    try:
        new = {name: read_toml(each)[key][name] for name, each in texts.items()}
        is_right = read_toml(changed) == {**before, key: {**before.get(key, {}), **new}}
    except (TomlTextError, KeyError):
        is_right = False
    if not is_right:
        raise CannotEditError("its servers are written in a way that nothing can be added to")
    return changed


def table_text(key: str, name: str, values: Mapping[str, Json]) -> str:
    """One server as a table; values are texts, or lists of them."""
    rows = [f"{name} = {_value(value)}" for name, value in values.items()]
    return "\n".join([f"[{key}.{_quoted(name)}]", *rows, ""])


def _spans(text: str, key: str, names: Collection[str]) -> dict[str, list[slice]]:
    lines = text.removeprefix(BOM).splitlines()
    spans: dict[str, list[slice]] = {name: [] for name in names}
    for each in tables(text):
        if each.keys[:1] == (key,) and len(each.keys) > 1 and each.keys[1] in spans:
            spans[each.keys[1]].append(_span(each, lines))
    return spans


def _span(table: Table, lines: Sequence[str]) -> slice:
    """Its lines without the blank ones and comments at its end, which belong to what follows."""
    end = table.end
    while end > table.first + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    # One of the blank lines around it goes, too.
    if end < len(lines) and not lines[end].strip():
        end += 1
    return slice(table.first, end)


def _value(value: Json) -> str:
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
