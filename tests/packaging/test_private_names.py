"""The private names of libraries that the product uses: an upgrade that drops one fails here, as does a new use.

The guest's are not here: it runs on the one Python that it is baked with.
"""

import argparse
import ast
import os
from collections import namedtuple

import httpx2._utils
import pydantic._internal._docs_extraction
import pytest
import wasmtime._ffi
from wasmtime.component import Instance

from tests.packaging.source_tree import ROOT

FOLDERS = ("portal", "upstreams", "sandbox_runtime", "manifests")
OWNERS: dict[str, object] = {
    "_SubParsersAction": argparse,
    "_actions": argparse.ArgumentParser(),
    "_consume": wasmtime.WasmtimeError,
    "_context": wasmtime.Store,
    "_docs_extraction": pydantic._internal,
    "_exit": os,  # documented, as _replace is
    "_ffi": wasmtime,
    "_from_ptr": wasmtime.WasmtimeError,
    "_instance": Instance.__annotations__,
    "_internal": pydantic,
    "_replace": namedtuple("_", ""),
    "_utils": httpx2,
    "URLPattern": httpx2._utils,
    "extract_docstrings_from_cls": pydantic._internal._docs_extraction,
    "get_environment_proxies": httpx2._utils,
}
"""Each name, also public ones of private modules, and what has it."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("name", OWNERS)
def test_library_still_has_the_name(name: str) -> None:
    owner = OWNERS[name]
    assert name in owner if isinstance(owner, dict) else hasattr(owner, name)


def test_every_private_name_that_is_used_is_listed() -> None:
    used, own = set[str](), set[str]()
    paths = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "guest" not in path.parts
    ]
    for node in (each for path in paths for each in ast.walk(ast.parse(path.read_text()))):
        match node:
            case ast.Import(names=names):
                used.update(part for each in names for part in each.name.split("."))
            case ast.ImportFrom(module=str(module), names=names):
                parts = [part for part in module.split(".") if _is_private(part)]
                used.update(parts, (each.name for each in names if parts or _is_private(each.name)))
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(attr=name) if _is_private(name):
                used.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                own.add(name)
    assert set(filter(_is_private, used - own)) <= OWNERS.keys() <= used
