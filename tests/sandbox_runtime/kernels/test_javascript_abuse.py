"""What scripts in JavaScript do to the engine and to our part of it, by mistake or on purpose, stays with them."""

import asyncio
import base64

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.sandbox import Sandbox, Session
from tests.one_sandbox import OneSandbox
from tests.sandbox_runtime.running import EchoPort, Heard, Runner

LITTLE = Limits(memory_mib=48)
FULL = (
    "globalThis.held = [];\n"
    "for (const size of [65536, 512]) try { for (;;) held.push(new Uint8Array(size)) } catch {}\n"
)
STRANGE = "new Proxy({}, {get() { throw 1 }, getPrototypeOf() { throw 2 }})"


@pytest.fixture(scope="session")
async def sandbox(one: OneSandbox) -> Sandbox:
    return await one.opened(JAVASCRIPT)


NAMES = "Promise Error Object Map Set Symbol Date Array JSON Math Number String Proxy Reflect TypeError BigInt RegExp"


async def test_script_may_declare_names_of_built_ins(run: Runner) -> None:
    """In a module these would be variables of its own; here they are properties of the global object."""
    names = "".join(f"let {name} = '2026';\n" for name in NAMES.split())
    script = f"{names}console.log({{a: [1]}});\nportal.emit({{type: 'text', text: 'x'}});\nawait git.git_log({{a: 1}})"
    result = await run(script)
    assert (result.error, result.value, result.stdout) == (None, {"a": 1}, '{"a":[1]}\n')
    error = await run.error(f"{names}let x;\nx.y")
    assert (
        error.message == "TypeError: cannot read property 'y' of undefined"
        and error.line == names.count("\n") + 2
    )


async def test_big_integers_stay_exact_when_a_script_replaces_how_they_become_json(run: Runner) -> None:
    script = (
        "BigInt.prototype.toJSON = function () { return Number(this) };\n"
        "const sent = await git.git_log({id: 9007199254740993n});\n[sent.id, 9007199254740995n]"
    )
    port = EchoPort()
    assert await run.value(script, port=port) == [9007199254740993, 9007199254740995]
    assert port.calls[0].arguments == {"id": 9007199254740993}


@pytest.mark.parametrize(
    "statement",
    [
        f"Promise.reject({STRANGE})",
        f"console.log({STRANGE})",
        f"queueMicrotask(() => {{ throw {STRANGE} }}); await 0",
    ],
)
async def test_value_that_cannot_be_shown_loses_nothing_else(run: Runner, statement: str) -> None:
    result = await run(
        f"const list = [];\nlist.push(git.git_log({{}}));\n{statement};\n5", observer=(heard := Heard())
    )
    assert (result.error, result.value) == (None, 5) and "cannot be shown" in result.stdout
    assert heard.opened == [(1, "git.git_log")] and not heard.calls


async def test_call_in_a_function_that_nothing_awaits_is_told_so(run: Runner) -> None:
    result = await run(
        "[1, 2].forEach(async (i) => { await git.git_log({i}) });\n5", port=(port := EchoPort())
    )
    [notice] = [notice for notice in result.notices if "git.git_log" in notice]
    assert result.value == 5 and not port.calls and "on line 1 never ran: the script ended first" in notice


LISTED, NAMED = "[['a', 0], ['b', null]]", "{a: 0, b: null}"


@pytest.mark.parametrize(
    ("body", "sent", "params"),
    [
        ("Uint8Array.of(1, 200).buffer", b"\x01\xc8", NAMED),
        ("Uint16Array.of(1, 2, 3).subarray(1)", b"\x02\0\x03\0", NAMED),
        ("new DataView(Uint8Array.of(1, 2, 3, 4).buffer, 1, 2)", b"\x02\x03", NAMED),
        ("new URLSearchParams({a: 'ü'})", b"a=%C3%BC", LISTED),
        ("'ü'", "ü".encode(), LISTED),
    ],
)
async def test_body_of_a_fetch_is_sent_as_its_bytes(run: Runner, body: str, sent: bytes, params: str) -> None:
    bodies: list[bytes] = []
    kinds: list[Json] = []
    urls: list[Json] = []

    async def fetch(call: ToolCall) -> Outcome:
        kinds.extend(call.arguments["headers"])
        urls.append(call.arguments["url"])
        bodies.append(base64.b64decode(str(call.arguments["body"])))
        return Outcome({"status": 200, "url": "", "headers": [], "body": ""})

    script = f"(await portal.fetch('https://a.b', {{method: 'POST', params: {params}, body: {body}}})).status"
    assert await run.value(script, port=fetch) == 200
    assert (bodies, urls) == ([sent], ["https://a.b?a=0"])
    assert ("x-www-form-urlencoded" in f"{kinds}") == ("URLSearchParams" in body)


@pytest.mark.parametrize("body", ["{a: 1}", "() => 1", "git.git_log({})"])
async def test_body_of_a_fetch_that_is_no_text_is_refused(run: Runner, body: str) -> None:
    error = await run.error(f"await portal.fetch('https://a.b', {{method: 'POST', body: {body}}})")
    assert error.message.startswith("TypeError: portal.fetch accepts text, bytes or URLSearchParams")


@pytest.mark.parametrize(("block", "kind"), [("null", "a null"), ("[5]", "a number"), ("{}", "an Object")])
async def test_emit_says_what_is_no_block(run: Runner, block: str, kind: str) -> None:
    assert f"this is {kind} without" in (await run.error(f"portal.emit({block})")).message


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("const r = await Promise.allSettled([...Array(50).keys()].map((i) => git.git_log({i, x: 'x'.repeat(500)})));\n"
         "r.map((each) => each.value.i).length", 50),
        ("let n = 0;\n"
         "for (let i = 0; i < 9; i++) { const C = class { #x = 1; x() { return this.#x } }; n += new C().x() }\nn", 9),
        ("let n = 0;\nawait Promise.all(Array.from({length: 200}, async () => { await 0; n++ }));\nn", 200),
        ("const r = await git.git_log({a: 2n ** 64n});\nString(r.a)", str(2**64)),
        ("Array.from({length: 100}, (_, i) => new Date(i).toISOString()).length", 100),
    ],
)  # fmt: skip
async def test_script_without_memory_is_right_or_says_so(run: Runner, script: str, value: Json) -> None:
    for free in (0, 2, 20, 120):
        result = await run(f"{FULL}for (let i = 0; i < {free}; i++) held.pop();\n{script}", limits=LITTLE)
        if result.error is None:
            assert result.value == value
        elif result.error.code != "memory_limit":
            # The script saw that something failed, and stumbled over it.
            assert result.error.message.startswith("TypeError"), result.error


async def test_session_that_was_out_of_memory_goes_on(run: Runner, session: Session) -> None:
    await run(f"{FULL}try {{ for (;;) held.push([]) }} catch {{}}", session=session, limits=LITTLE)
    await run("held.length = 0", session=session, limits=LITTLE)
    result = await run("await git.git_log({a: [new Date(0)]})", session=session, limits=LITTLE)
    assert (result.error, result.value) == (None, {"a": ["1970-01-01T00:00:00.000Z"]})


async def test_run_that_cannot_begin_says_why(run: Runner, session: Session) -> None:
    await run("delete portal.run; 1", session=session)
    error = await run.error("await git.git_log({})", session=session)
    assert "property 'id' of undefined" in error.message


@pytest.mark.parametrize(
    "patch",
    [
        "Array.prototype.join = () => '7 git.git_log {}'",
        "Array.prototype.push = function (line) { this[this.length] = `${line}\\n9 git.git_show {}` }",
        "RegExp.prototype.test = String.prototype.includes = () => true; git['x\\n9 git.git_show']({})",
        "Object.prototype.toJSON = Array.prototype.toJSON = () => 'a\\nb'",
        "Array.prototype[Symbol.iterator] = function* () {}",
        "Promise.prototype.then = Promise.prototype.finally = () => { throw 1 }",
    ],
)
async def test_forged_lines_are_calls_like_any_other_or_end_the_run(run: Runner, patch: str) -> None:
    """What the port gets is what the observer has heard of, whatever a script does to the lines between."""
    heard = Heard()
    async with asyncio.timeout(20):
        await run(
            f"{patch};\nawait git.git_log({{a: 1}})",
            port=heard,
            observer=heard,
            limits=Limits(wall_seconds=5),
        )
        assert {(call.seq, call.function) for call in heard.calls} <= set(heard.opened)
        assert await run.value("await git.git_log({a: 1})") == {"a": 1}
