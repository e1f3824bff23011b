"""Scripts with newer f-strings, emptied for older Pythons."""

import ast

import pytest

from portal.check.f_strings import without_f_strings

EMPTIED = [
    ("x", "x"),
    ("f'a'", "f'x'"),
    ("f'{x}' + y", "f'xxx' + y"),
    ('f"{r["a"]}"; x', 'f"xxxxxxxx"; x'),
    ('f"{r["a"]} and {r["b"]:>{w}}"; x', 'f"xxxxxxxxxxxxxxxxxxxxxxxxxx"; x'),
    ('f"{f"{f"{1}"}"}"; x', 'f"xxxxxxxxxxxxx"; x'),
    ('f"{{"; x', 'f"xx"; x'),
    ('f"{ {"a": 1}["a"] }"; x', 'f"xxxxxxxxxxxxxxxxx"; x'),
    ("rf'\\d{x}'; x", "rf'xxxxx'; x"),
    ("f'\\'{x}'; x", "f'xxxxx'; x"),
    ("f'''\n{x}'''; x", "f'''\nxxx'''; x"),
    ("t'{x}'; x", "f'xxx'; x"),
    ("'{x}' 'f' # f'", "'{x}' 'f' # f'"),
    ('"""f\'{x}"""', '"""f\'{x}"""'),
    ('f"{x:%H:%M}"; x', 'f"xxxxxxxxx"; x'),
    ('f"{x!r:>{10}}"; x', 'f"xxxxxxxxxxx"; x'),
    ('f"{d["a"] if c else "b"}"; x', 'f"xxxxxxxxxxxxxxxxxxxxxx"; x'),
    ('f"{", ".join(xs)}"; x', 'f"xxxxxxxxxxxxxxx"; x'),
    ("half''; elf = 1", "half''; elf = 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "emptied"), EMPTIED)
def test_f_strings_become_empty_ones_of_the_same_length(text: str, emptied: str) -> None:
    assert without_f_strings(text) == emptied


@pytest.mark.parametrize("text", [text for text, _ in EMPTIED if not text.startswith("half")])
def test_every_python_can_read_what_is_left(text: str) -> None:
    ast.parse(without_f_strings(text))


@pytest.mark.parametrize(
    "text", ["f'", "f'{", "f'{x", "f\"{'", "f'{(]}", "f'{x:", "'", "'''", "f'{" * 200, "{" * 500 + "f'"]
)
def test_what_is_no_python_keeps_its_length(text: str) -> None:
    assert len(without_f_strings(text)) == len(text)
