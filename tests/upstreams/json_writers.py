"""Strings in JSON as writers of other languages spell them by default."""

import json


def unit_by_unit(character: str, *, upper: bool) -> str:
    written = character.encode("utf-16-be", "surrogatepass").hex()
    written = written.upper() if upper else written
    return "".join(f"\\u{written[place : place + 4]}" for place in range(0, len(written), 4))


def as_go_writes(text: str) -> str:
    """`encoding/json` of Go."""
    written = json.dumps(text, ensure_ascii=False)
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def as_dotnet_writes(text: str) -> str:
    """System.Text.Json of .NET."""
    escaped = {*"+&<>'\"`"}
    body = (
        unit_by_unit(each, upper=True) if each in escaped or not each.isascii() else json.dumps(each)[1:-1]
        for each in text
    )
    return f'"{"".join(body)}"'


def as_php_writes(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")
