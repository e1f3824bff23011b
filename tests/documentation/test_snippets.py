"""Each block of code on README, in docs/ and in the examples is what its fence says, and scripts of blocks run."""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import json5
import pytest
import yaml
from markdown_it import MarkdownIt
from mcp_types import CallToolResult

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.references import SecretError, SecretReference
from portal.cli.parser import argument_parser
from tests.portal.peers import Act, Peer, opened, schema, structured, text, tool

ROOT = Path(__file__).parents[2]
GLOBS = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md")

DATA = {"json": json.loads, "jsonc": json5.loads, "toml": tomllib.loads}
SHELLS = {"console": r"\$ ", "sh": "", "bash": ""}
"""The languages of commands, and what each command begins with."""
HERE = re.compile(r"(?ms)(\S+) <<'?(\w+)'?\n(.*?)^\2$")
"""A file that a command writes: it is a block in the language of its name."""
SCRIPTS = ("python", "typescript", "javascript")
NOT_CHECKED = {
    "": "signatures, formulas and answers, as they are printed",
    "text": "the same",
    "js": "a program for a client's own code mode",
    "markdown": "a text for models, whose script test_start.py runs",
}
NOT_MANIFESTS = {"scrape_configs": "Prometheus reads it"}
"""YAML that only has to be YAML, by its first key."""
ENDS_OTHERWISE = {
    "portal.fetch(": ("not_granted", "nothing is fetched from the network here"),
    "portal.resources(": ("invalid_arguments", "no upstream here has resources and prompts"),
    "portal.sleep(": ("waiting", "it waits for hours"),
    "portal.event(": ("waiting", "it waits for another program"),
    "portal.approve(": ("waiting", "it waits for a person"),
    "portal.recall(": ("unknown_handle", "no result was kept before"),
}
"""Scripts that do not end well here, by a part of them, each with how it ends: after the check, when it runs."""
AROUND = {
    "upstreams": "{search: {command: x}, search2: {command: x}, archive: {command: x}}",
    "profiles": "{admin: {}, reader: {}}",
    "server": "{auth: {issuer: https://id.example, audience: https://portal.example/mcp}}",
}
"""What stands around a fragment of a manifest, as far as the fragment does not have that section itself."""
AN_UPSTREAM = "upstreams:\n  any:\n    url: https://any.example\n"
"""What stands before an indented fragment."""


@dataclass(frozen=True)
class Block:
    place: str
    language: str
    is_program: bool
    """It belongs to an example, or its fence names a file: no script of a model. Another test runs it."""
    source: str


def blocks(*languages: str) -> list[Block]:
    return [block for block in every_block() if block.language in languages]


@cache
def every_block() -> list[Block]:
    found = []
    for page in (page for glob in GLOBS for page in sorted(ROOT.glob(glob))):
        for token in MarkdownIt().parse(page.read_text("utf-8")):
            if token.type == "fence" and token.map:
                language, _, name = token.info.partition(" ")
                place = f"{page.relative_to(ROOT)}:{token.map[0] + 1}"
                is_program = bool(name) or place.startswith("examples/")
                found.append(Block(place, language, is_program, token.content))
                for file, _, text in HERE.findall(token.content) if language in SHELLS else []:
                    found.append(Block(place, Path(file).suffix[1:], True, text))
    return found


def test_every_language_has_a_test() -> None:
    known = {"yaml", *SHELLS, *DATA, *SCRIPTS, *NOT_CHECKED}
    assert [(block.place, block.language) for block in every_block() if block.language not in known] == []


def test_yaml_is_a_manifest_or_a_fragment_of_one(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for block in blocks("yaml"):
        with subtests.test(block.place):
            source = f"{AN_UPSTREAM if block.source.startswith(' ') else ''}{block.source}"
            sections = yaml.safe_load(source)
            if next(iter(sections)) in NOT_MANIFESTS:
                continue
            around = [f"{name}: {section}" for name, section in AROUND.items() if name not in sections]
            (tmp_path / "alone.yaml").write_text(block.source)
            (tmp_path / "around.yaml").write_text("\n".join([source, *around]))
            environ = {name: f"{name}-{'x' * 16}" for name in re.findall(r"\$\{(\w+)\}", source)}
            try:
                load_manifest(tmp_path / "alone.yaml", environ, stored)
            except ManifestError:
                load_manifest(tmp_path / "around.yaml", environ, stored)


def test_data_can_be_parsed_and_commands_are_those_that_there_are(subtests: pytest.Subtests) -> None:
    for block in blocks(*DATA, *SHELLS):
        with subtests.test(block.place):
            for words in command_lines(block):
                assert [command for command in portal_commands(words) if not is_accepted(command)] == []
                own = [word for word in words if re.match(r"(scripts|examples|tests)/", word)]
                assert [name for name in own if not (ROOT / name).exists()] == []


async def test_scripts_run(tmp_path: Path, subtests: pytest.Subtests) -> None:
    scripts = [block for block in blocks(*SCRIPTS) if not block.is_program]
    called = {
        pair for script in scripts for pair in re.findall(r"(?:await |\")(\w+)\.(\w+)[(\"]", script.source)
    }
    names = {name for name, _ in called} - {"asyncio", "Promise", "portal", "time_"}
    peers = {name: Peer(*(tool(own) for of, own in sorted(called) if of == name)) for name in names}
    server: Json = {"kernels": {"python": True, "javascript": True}}
    runs: Json = {"public_url": "https://portal.example", "park_after_seconds": 0}
    peers |= {"git": git(), "time": time(), "tickets": tickets()}
    async with opened(tmp_path, peers, server=server, runs=runs) as portal:
        for script in scripts:
            with subtests.test(script.place):
                kernel = "python" if script.language == "python" else "javascript"
                answer = (
                    await portal.call("execute_code", code=script.source, kernel=kernel)
                ).structured_content
                assert answer is not None
                ends = [end for part, (end, _) in ENDS_OTHERWISE.items() if part in script.source] or ["ok"]
                assert (answer["error"] or {}).get("code", answer["status"]) in ends, answer
                if ends == ["ok"]:
                    assert answer["notices"] == [] and (
                        answer["result"] or "asyncio.run(" in script.source
                    ), answer


def test_programs_can_be_compiled(subtests: pytest.Subtests) -> None:
    for block in blocks("python"):
        if block.is_program:
            with subtests.test(block.place):
                compile(block.source, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


PARSER = argument_parser()


def is_accepted(arguments: list[str]) -> bool:
    try:
        PARSER.parse_args(arguments)
    except SystemExit as ended:
        return ended.code == 0
    return True


def portal_commands(words: list[str]) -> Iterator[list[str]]:
    """The arguments of each command line of the portal among these words of a shell."""
    for index, word in enumerate(words):
        before = words[index - 1] if index else "--"
        if Path(word).name == "mcp-code-portal" and (before in ("--", "&&", "uvx", word) or "=" in before):
            arguments = words[index + 1 :]
            ends = [arguments.index(end) for end in (">", "|", "&&", ";") if end in arguments]
            yield arguments[: min(ends, default=None)]


def command_lines(block: Block) -> Iterator[list[str]]:
    if block.language in DATA:
        yield from client_entries(DATA[block.language](block.source))
    else:
        text = HERE.sub(r"\1", block.source).replace("\\\n", " ")
        for line in re.findall(rf"(?m)^{SHELLS[block.language]}(.*)$", text):
            whole = re.sub("([0-9a-f]+)…", lambda short: short[1].ljust(64, "0"), line)
            yield shlex.split(whole, comments=True)


def client_entries(value: Json) -> Iterator[list[str]]:
    """The command lines in the configuration of a client."""
    if isinstance(value, dict) and isinstance(value.get("command"), str):
        yield [value["command"], *value.get("args", [])]
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from client_entries(each)


def stored(references: Collection[SecretReference], *_: object) -> dict[SecretReference, str | SecretError]:
    """What commands and the keyring would say."""
    return dict.fromkeys(references, "x" * 16)


def git() -> Peer:
    log = answering(structured({"result": "Author: ann\nAuthor: ann\n"}))
    return Peer(tool("git_log", output_schema=schema("result", result={"type": "string"})), git_log=log)


def time() -> Peer:
    now = answering(structured({"datetime": "2026-11-29T12:00:00+01:00"}))
    return Peer(tool("get_current_time"), get_current_time=now)


def tickets() -> Peer:
    rows, number, words = (
        {"type": "array", "items": {"type": "object"}},
        {"type": "integer"},
        {"type": "string"},
    )
    issue: Json = {"id": 7, "title": "Broken", "assignee": "ann"}
    shape = schema(id=number, title=words, assignee=words)
    return Peer(
        tool("list_issues", schema(state=words, limit=number), output_schema=schema("result", result=rows)),
        tool("get_issue", schema("id", id=number), output_schema={**shape, "title": "Issue"}),
        tool("add_label", schema("id", "label", id=number, label=words)),
        tool("create_issue"),
        list_issues=answering(structured({"result": [issue, issue]})),
        get_issue=answering(structured(issue)),
        add_label=answering(text("there is no issue 7", is_error=True)),
    )


def answering(result: CallToolResult) -> Act:
    async def act(arguments: dict[str, Json]) -> CallToolResult:
        return result

    return act
