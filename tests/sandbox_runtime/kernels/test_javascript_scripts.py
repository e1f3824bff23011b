"""What the JavaScript kernel makes of a script before it runs: facts, repairs, types, and what its value is."""

import re
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from manifests.grants import Limits
from manifests.kernels import JAVASCRIPT
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.result import FROM_RESULT, UNKNOWN_VALUE, Prepared, RunError
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.sandbox_runtime.running import Runner

NAMESPACES = ("crypto", "files", "git", "search", "time_", "weather")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
async def javascript() -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=1, kernel=KERNELS[JAVASCRIPT], progress=print) as sandbox:
        yield sandbox


@pytest.fixture
def js(javascript: Sandbox) -> Runner:
    return Runner(javascript)


async def prepared(js: Runner, script: str) -> Prepared:
    async with js.sandbox.run(Limits(), str) as run:
        return await run.prepare(script, NAMESPACES)


async def refused(js: Runner, script: str) -> RunError:
    error = (await prepared(js, script)).error
    assert error is not None and error.code == "syntax_error"
    return error


VALUES: list[tuple[str, Any]] = [
    ("", None),
    ("'use strict'", "use strict"),
    ("const x = 1;\nx // comment", 1),
    ("['b', 'Z', 'ä', 'az', 'A', 'a', 'a'].sort((a, b) => a.localeCompare(b)).join()", "a,a,A,ä,az,b,Z"),
    (
        "['z', 'Łukasz', 'Ørsted', 'p', 'm', 'straße', 'strasse'].sort((a, b) => a.localeCompare(b)).join()",
        "Łukasz,m,Ørsted,p,strasse,straße,z",
    ),
    ("'caf\u00e9'.localeCompare('cafe\u0301')", 0),
    ("const d = new Date(2026, 2, 5, 1, 0, 9); `${d.toLocaleString()}`", "3/5/2026, 1:00:09 AM"),
    (
        "[d = new Date(2026, 9, 10, 22), d.toLocaleDateString(), d.toLocaleTimeString()].slice(1)",
        ["10/10/2026", "10:00:00 PM"],
    ),
    ("new Date('0001-01-01T00:00:00Z').toLocaleString()", "1/1/1, 12:00:00 AM"),
    ("let a = 1, b = 2;", 2),
    ("let a = 1; function f() {}", 1),
    ("export default function a() { return 1 } function f() {}", 1),
    ("let x; x = {a: 1}", {"a": 1}),
    ("const {a, b: [c]} = {a: 1, b: [2]}", {"a": 1, "c": 2}),
    ("return 3", 3),
    ("for (const i of [1, 2]) if (i > 1) return i\n5", 2),
    ("if (true) { 'yes' } else { 'no' }", "yes"),
    ("if (false) 1; else 2", 2),
    ("try { null.x } catch (e) { 'caught' }", "caught"),
    ("try { Promise.reject(new Error('a')) } catch (e) { e.message }", "a"),
    ("(async () => { return 4 })()", 4),
    ("const r = later()\nr\nfunction later() { return 6 }", 6),
    ("async () => { return 7 }", 7),
    ("void (async () => { return 7 })()", 7),
    ("async function main() { return 1 }\nvoid (main());", 1),
    ("async function main() { return 1 }\n(void main())", 1),
    ("export default 8", 8),
    ("export default async function main() { return 9 }", 9),
    ("export default {a: 1};\nconst later = 2", {"a": 1}),
    ("export const a = 10;\na", 10),
    ("{ a: 1, b: [2] }", {"a": 1, "b": [2]}),
    ("const a = 1\n{ b: a, c: 2 };", {"b": 1, "c": 2}),
    ("const a = 1, b = 2;\n{ a, b }", {"a": 1, "b": 2}),
    ("{ a: 1 }", {"a": 1}),
    ("{}", {}),
    ("const f = () => {}\n;[1].map((x) => x)", [1]),
    ("const i = 7;\nfor (let i = 0; i < 2; i++) {}\ni", 7),
    (
        "const p = new URLSearchParams('a=1&b=2&a=3'); p.set('a', '4'); p.set('c', '5%'); `${p}`",
        "a=4&b=2&c=5%25",
    ),
    (
        "const p = new URLSearchParams('q=100%&r=%41&s=%E9é%C3%A9+%&t=%ED%A0%80'), seen = [];\n"
        "p.append('u', '\\ud800'); p.forEach((v, k) => seen.push(k + v)); [...seen.slice(0, 4), `${p}`.slice(-21)]",
        ["q100%", "rA", "s\ufffdéé %", "t\ufffd", "%EF%BF%BD&u=%EF%BF%BD"],
    ),
    ("new TextDecoder().decode(Uint8Array.of(239, 187, 191, 97))", "a"),
    (
        "const d = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}), seen = []\n"
        "for (const b of [[239, 187, 191], [239, 191, 189], [255], [237, 160, 128], [192, 128], [240, 159]])\n"
        "  try { seen.push(d.decode(Uint8Array.from(b))) } catch (e) { seen.push(e.name) }\n"
        "try { d.decode(Uint8Array.of(195), {stream: true}) } catch (e) { seen.push(e.name) }\nseen",
        ["\ufeff", "\ufffd", *["TypeError"] * 4, "RangeError"],
    ),
    ("const git = await git.git_log({count: 1})\ngit.count", 1),
    ("\ufeff#!/usr/bin/env node\r\n1", 1),
    ("set()\nvar x = 1; var x\nfunction set() { x = 2 }\nvar y; set(); x", 2),
    (
        "ünï\\u0061 = 3; const $à = 4; class A { #é = 5; get a() { return this.#é } }\nünïa + $à + new A().a",
        12,
    ),
]


@pytest.mark.parametrize(("script", "value"), VALUES)
async def test_value_is_the_last_expression_assignment_or_return(js: Runner, script: str, value: Any) -> None:
    assert await js.value(script) == value


TYPES: list[tuple[str, Any]] = [
    ("[1, 2].reduce<number>((a, b) => a + b, 0)", 3),
    ("(await Promise.all<Array<any>>([[1]])).length", 1),
    ("const [a, b, c] = [3, 2, 1]; [a<b, 'x<i>(y)', a<b||c>(b)]", [False, "x<i>(y)", False]),
    ("const x: number = 1, f = <T,>(a: T, b?: string): T => a\nf<number>(x)", 1),
    (
        "interface A { x: string }\ntype B = A | null\nconst a = {x: 'y'} as unknown as A satisfies B\na!.x",
        "y",
    ),
    ("enum E { a, b = 5, c, d = 'x', e = b | 8 }\n[E.a, E.c, E[6], E.d, E.e]", [0, 6, "c", "x", 13]),
    ("const enum E {\n  a = 'x',\n}\nE.a", "x"),
    ("enum E { Q = 'it\\'s', A = 1, B = /* don't */ A, class = B, C = E.class | 2 }\n[E.B, E.C]", [1, 3]),
    ("enum P { A = (1 << 0), B = (A << 1) }\n[P.B, P[1]]", [2, "A"]),
    (
        "enum A { X /* a, = */, Y /* = */ = 5 // b,\n, 'z' = (7 as number), w }\n[A.X, A.Y, A.z, A.w]",
        [0, 5, 7, 8],
    ),
    ("enum M { new = 'new', b = 1 as number }\n[M.new, M[1]]", ["new", "b"]),
    (
        "class P { constructor(private a = 1, readonly b = 2) {} sum() { return this.a + this.b } }\nnew P().sum()",
        3,
    ),
    (
        "class A { x = 1 }\nclass B extends A { constructor(public y: number) { super() } }\nnew B(2)",
        {"x": 1, "y": 2},
    ),
    (
        "abstract class A { abstract m(): void; private n?: string; [k: string]: any; o = 1 }\nnew (A as any)().o",
        1,
    ),
    ("class A implements Object { private *[Symbol.iterator](): any { yield 1 } }\n[...new A()]", [1]),
    (
        "function f(a: string): string\nfunction f(a: 1): 1\nfunction f(this: any, a: any) { return a }\nf(1)",
        1,
    ),
    (
        "import type { A } from 'tools'\ndeclare const y: string\nlet x: [a: string, b?: number] = ['q']\nx",
        ["q"],
    ),
    ("let x: number\n(1, 2)", 2),
    ("const y = 1\ninterface A {}\n[3].length", 1),
    ("const f = async (a: string): Promise<\n  string\n> => a\nf('z')", "z"),
    ("const g = async <\n  T\n>(a: T) => a\ng('z')", "z"),
    ("try { throw new Error('m') } catch (e: unknown) { (e as Error).message }", "m"),
    ("const a = new Set<string>(['x']), b = (s) => s;\n[...a, b<{k: 1}>`y`[0]]", ["x", "y"]),
    ("[1, 2].reduce<Record<string, number[]>>((all, n) => ({...all, [n]: [n]}), {})", {"1": [1], "2": [2]}),
    ("const a = 1, b = 2, c = 3;\n[a < b, c > (0)]", [True, True]),
    ("const rows = <any[]>[1]; for (const r of rows as number[]) rows.push\nrows!", [1]),
]


@pytest.mark.parametrize(("script", "value"), TYPES)
async def test_types_leave_lines_and_meaning_as_they_are(js: Runner, script: str, value: Any) -> None:
    assert await js.value(script) == value
    source = (await prepared(js, script)).source
    assert source.count("\n") == script.count("\n")


async def test_erased_types_leave_each_column_where_it_was(js: Runner) -> None:
    script = (
        "const rows: A<B>[] = (await git.git_log({count: 1} as C))!.rows satisfies D; type E = {\n  a: 1 }"
    )
    source = (await prepared(js, script)).source
    assert len(source) == len(script)
    assert all(new in (old, " ", ";") for old, new in zip(script, source, strict=True))


AWAITED = r"""
~git.f({})
1
---
const x = ~git.f({}), y = x.rows
---
«git.f({})».rows
---
a()
;«git.f({})».rows
---
const {rows} = ~git.f({})
---
`${~git.f({})}`
---
for (const x of ~git.f({})) ~git.g({x})
---
console.log(~git.f({}), [...~git.g({})])
---
if («git.f({})» && «git.g({})» > 1) 1
---
const all = {a: ~git.f({}), b: [~git.g({})]}
JSON.stringify(all)
---
return [~git.f({}), {b: ~git.g({})}]
---
git.f({a: ~git.g({})})
---
async function main() { const x = ~git.f({}); return x.a }
~main()
1
---
const {f: log} = git; ~log({})
1
---
const f = async () => 1
const n = ~f()
n + 1
---
function f(i) { return git.f({i}) }
«f(1)».rows
---
const [a, b] = ~Promise.all([git.f({}), git.g({})])
---
const found = ~portal.search("a")
found.functions
---
class A { async m() { ~git.f({}); } }
---
const [x, y] = await [~git.f({}), ~git.g({})]
x.a + y
"""
"""`~` stands for an inserted `await `, `«` and `»` for `(await ` and `)`."""

RIGHT = r"""
const p = git.f({}); (await p).rows
---
const [a, b] = await Promise.all([git.f({}), git.g({})])
---
const calls = []; calls.push(git.f({})); await Promise.all(calls)
---
const a = git.f({}), b = git.g({}); const [x, y] = await Promise.all([a, b])
---
git.f({}).then((x) => x.rows)
---
await Promise.all([1].map((i) => git.f({i})))
---
const get = (i) => git.f({i})
const rows = await Promise.all([1].map(get))
---
const jobs = [1].map((i) => git.f({i}))
for (const job of jobs) console.log(await job)
---
for await (const x of [git.f({})]) console.log(x)
---
async function main() { return git.f({}) }
await main()
---
const jobs = {a: git.f({}), b: git.g({})}
for (const [key, job] of Object.entries(jobs)) console.log(key, await job)
---
const tag = (_, ...values) => Promise.all(values)
await tag`${git.f({})} ${git.g({})}`
---
const f = (git) => git.f(1)
f({f: (x) => x})
---
git.f({})
"""


def scripts(table: str) -> list[str]:
    return table.strip("\n").split("\n---\n")


@pytest.mark.parametrize("script", scripts(AWAITED))
async def test_forgotten_await_is_inserted_with_a_notice(js: Runner, script: str) -> None:
    forgotten, awaited = script, script
    for mark, text in (("~", "await "), ("«", "(await "), ("»", ")")):
        forgotten, awaited = forgotten.replace(mark, ""), awaited.replace(mark, text)
    found = await prepared(js, forgotten)
    assert found.source.replace("\n;(", "\n(") == awaited.replace("\n;(", "\n(")
    assert found.notices[0].startswith("`await` was inserted: line ")
    assert (await prepared(js, awaited)).notices == ()


async def test_forgotten_await_of_a_list_is_inserted(js: Runner) -> None:
    for given in ("", "await "):
        script = f"const rows = {given}[1].map(async (i) => await git.f({{i}}))\nrows.filter((row) => row.ok)"
        awaited = f"= {given}await Promise.all([1].map(async (i) => await git.f({{i}})))\n"
        assert awaited in (await prepared(js, script)).source


@pytest.mark.parametrize("script", scripts(RIGHT))
async def test_right_script_is_not_changed(js: Runner, script: str) -> None:
    found = await prepared(js, script)
    assert (found.source, found.notices) == (script, ())
    assert [each for each in found.problems if each.code != "keys_only"] == []


USES: list[tuple[str, list[tuple[str, str, int]]]] = [
    ("await git.log()", [("git", "log", 1)]),
    ("tools.git.log(); tools['git']['log']()", [("git", "log", 1), ("git", "log", 1)]),
    ("import {git as g} from 'tools'\ng.log()", [("git", "log", 2)]),
    ("import * as git from './servers/git/index.js'\ngit.log()", [("git", "log", 2)]),
    ("import g, {diff as d} from 'git'\nd()", [("git", "diff", 1), ("git", "diff", 2)]),
    ("const {git: g} = require('tools')\ng.log()", [("git", "log", 2)]),
    ("const {git} = await import('tools')\ngit.log()", [("git", "log", 2)]),
    ("import {nothing} from 'tools'", [("nothing", "", 1)]),
    ("import {crypto} from 'tools'\ncrypto.log()", [("crypto", "log", 2)]),
    ("await tools.crypto.log()", [("crypto", "log", 1)]),
    ("import {log} from 'tools/crypto'\nlog()", [("crypto", "log", 1), ("crypto", "log", 2)]),
    ("const {log: l} = git, again = l\nagain({})", [("git", "log", 1), ("git", "log", 2)]),
    ("const f = (git) => git.log()\nf(1)", []),
    ("let call = git.log; for (call of [f]) call({a: 1})", [("git", "log", 1)]),
    ("git.log = f\n'git.log()'", []),
    ("if (git.maybe) git.maybe()\ngit.perhaps?.()\ntypeof git.so", []),
    ("nothing.log(); log()", [("nothing", "log", 1), ("", "log", 1)]),
    ("mcp__git__log({})", [("git", "log", 1)]),
    ("time.now({})", [("time_", "now", 1)]),
    ("const {now} = time, t = time, both = {git, time}\nt.now(), now()", [("time_", "now", 2)]),
    ("const home = portal.env.HOME, {env: {STAGE}, run} = portal\nportal.run.id.slice(4)", []),
    ("console.log(Math.max(1), JSON, structuredClone(1), crypto.randomUUID(), URLSearchParams)", []),
    ("atob(''), performance.now()", []),
    ("queueMicrotask(f => f)\nfunction f() { return arguments.length }\nArray.from({length: 1}).at(0)", []),
]


@pytest.mark.parametrize(("script", "uses"), USES)
async def test_uses_are_what_can_be_seen_in_the_text(js: Runner, script: str, uses: list[Any]) -> None:
    found = await prepared(js, script)
    assert sorted({use[:3] for use in found.uses}) == sorted(set(uses))
    assert found.names >= {namespace for namespace, *_ in uses if namespace in NAMESPACES}


KNOWN = "const known = {k: 1}, changed = {k: 1}, r = await weather.now({}); Object.assign(changed, {a: 2})"
ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("({a: 1, b: -2.5, c: null, f: undefined})", {"a": 1, "b": -2.5, "c": None}),
    ("({'d': `x`, e: true, f: 'y'})", {"d": "x", "e": True, "f": "y"}),
    ("(3, 'x')", {"*0": 3, "*1": "x"}),
    ("({a: [1, x], b: {c: x, d: [{}]}})", {"a": [1, UNKNOWN_VALUE], "b": {"c": UNKNOWN_VALUE, "d": [{}]}}),
    (
        "({a: f(), b: {[x]: 1}, c: /x/, d: 1e999, e: '\\ud800', f: 2 ** 60})",
        dict.fromkeys("abcdef", UNKNOWN_VALUE),
    ),
    ("({a: 12345678901234567890, b: 99n})", {"a": UNKNOWN_VALUE, "b": 99}),
    ("({...x, a: 1})", {"**": UNKNOWN_VALUE, "a": 1}),
    ("({...{a: 1}})", {"a": 1}),
    ("(x)", {"**": UNKNOWN_VALUE}),
    ("(known)", {"k": 1}),
    ("(changed)", {"**": UNKNOWN_VALUE}),
    ("(a=1, b='x')", {"a": 1, "b": "x"}),
    ("({a: r.id, b: `${r.id}`})", {"a": FROM_RESULT, "b": FROM_RESULT}),
    ("({__proto__: {a: 1}, constructor: 2})", {"**": UNKNOWN_VALUE, "constructor": 2}),
]


@pytest.mark.parametrize(("call", "arguments"), ARGUMENTS)
async def test_literals_of_a_call_are_told(js: Runner, call: str, arguments: dict[str, Any]) -> None:
    found = await prepared(js, f"{KNOWN}\nawait git.log{call}")
    assert [use.arguments for use in found.uses if use.function == "log"] == [arguments]


PROBLEMS: list[tuple[str, list[str]]] = [
    ("const first = 1\nasync function helper() { return await git.log({}) }", []),
    ("export const helper = async () => await git.log({})", []),
    ("await git.log", ["not_called"]),
    ("git({})", ["not_a_function"]),
    ("function f() { return git.log({}).x }\nf()", ["not_awaited"]),
    ("[1].filter((i) => git.log({i}).ok)", ["not_awaited"]),
    ("class A { x = git.log({}).y }", ["not_awaited"]),
    ("[1].forEach(async (i) => { await git.log({i}) })", ["not_awaited"]),
    ("if (portal.approve('?')) f()", ["not_awaited"]),
    ("const ask = async () => true\nif (ask()) f()", ["not_awaited"]),
    ("const fs = require('fs')\nimport axios from 'axios'\nimport('x')", ["not_there"] * 3),
    ("await fetch('https://a.b'); process.env.X; document.title; localStorage", ["not_there"] * 4),
    ("new URL('https://a.b'); new Intl.NumberFormat(); new AbortController()", ["not_there"] * 3),
    ("await Promise.race([git.log(), AbortSignal.timeout(100)])", ["not_there"]),
    ("crypto.subtle.digest('SHA-256', x); Buffer.from('a')", ["not_there"] * 2),
    ("d.toLocaleDateString('en-US', {weekday: 'long'}); n.toLocaleString('de-DE')", ["not_there"] * 2),
    (
        "const o = {maximumFractionDigits: 0}, l = 'en-US'; n.toLocaleString(l, o), n.toLocaleString('en', {})",
        [],
    ),
    (
        "n.toLocaleString('en-US', {style: 'percent', timeZone: 'UTC'}); n.toLocaleString(l, o)",
        ["not_there"] * 2,
    ),
    ("try { d.toLocaleTimeString(undefined, {timeZone}) } catch { }", ["not_there"]),
    ("['a10', 'a9'].sort((a, b) => a.localeCompare(b, undefined, {numeric: true}))", ["not_there"]),
    ("n.toLocaleString(), d.toLocaleString('en-US'), d.toLocaleDateString(undefined)", []),
    ("n.toLocaleString([], {maximumFractionDigits: 2}), d.toLocaleString(['en-us'])", []),
    ("n.toLocaleString(['de']); n.toLocaleString([...l]); n.toLocaleString([, 'en'])", ["not_there"] * 3),
    ("a.localeCompare(b), a.localeCompare(b, 'de'); const f = (crypto) => crypto.subtle", []),
    ("typeof fetch; if (globalThis.process) process.exit(); const f = (document) => document", []),
    ("try { require('fs') } catch { }", []),
    ("print(len([1])); True", ["not_javascript"] * 3),
    ("const len = (x) => x.length\nlen('a')", []),
    ("for (str of ['a']) console.log(str)", []),
    ("const f = async () => {}\nfunction g() { f() }\ng()", ["not_awaited"]),
    ("await new Promise((end) => { const f = async () => { end(await git.log({})) }; f() })", []),
    ("await portal.ask('?'); portal.files", ["not_there"] * 2),
    ("portal.run.id, portal.sleep(0), portal.readResource, portal.search('x')", []),
    ("const r = await git.log({})\nr.content[0].text; for (const x of r) f(x)", ["keys_only"] * 2),
    ("const r = await git.log({}); Object.keys(r); r['a']; r.toString()", ["keys_only"]),
]


@pytest.mark.parametrize(("script", "codes"), PROBLEMS)
async def test_what_cannot_work_is_told_before_the_run(js: Runner, script: str, codes: list[str]) -> None:
    assert [problem.code for problem in (await prepared(js, script)).problems] == codes


@pytest.mark.parametrize("namespace", ["document", "fetch", "fs", "json_", "process"])
async def test_upstream_with_the_name_of_what_is_not_there_can_be_called(js: Runner, namespace: str) -> None:
    async with js.sandbox.run(Limits(), str) as run:
        found = await run.prepare(f"await {namespace.rstrip('_')}.get({{}})", (namespace,))
    assert found.problems == ()
    assert [use[:2] for use in found.uses] == [(namespace, "get")]


async def test_variable_that_hides_its_namespace_is_told(js: Runner) -> None:
    error = await js.error("async function main() { const git = await git.log({}) }\nawait main()")
    assert error.code == "script_error" and "tools.git" in error.hint
    assert (await js.error("{ x; let x = 1 }")).hint == ""


async def test_value_that_is_undefined_is_told(js: Runner) -> None:
    for script in ("[1].find((x) => x > 5)", "return new Map().get('a')", "for (const x of [1]) x"):
        (notice,) = (await js(script)).notices
        assert notice.startswith("the value is undefined")
    assert (await js("console.log(1)\nundefined")).notices == ()


NUMBERS: list[tuple[str, list[str]]] = [
    ("", ["1,234,567.891", "-0.5", "12", "NaN"]),
    ("'en-US', {minimumFractionDigits: 2}", ["1,234,567.891", "-0.50", "12.00", "NaN"]),
    ("undefined, {maximumFractionDigits: 1, useGrouping: false}", ["1234567.9", "-0.5", "12", "NaN"]),
    ("'en', {style: 'currency', currency: 'USD'}", ["$1,234,567.89", "-$0.50", "$12.00", "NaN"]),
    (
        "'en', {style: 'currency', currency: 'CHF'}",
        ["CHF\xa01,234,567.89", "-CHF\xa00.50", "CHF\xa012.00", "NaN"],
    ),
    ("'en', {style: 'currency', currency: 'KRW'}", ["₩1,234,568", "-₩1", "₩12", "NaN"]),
    ("undefined, {style: 'percent'}", ["123,456,789%", "-50%", "1,200%", "NaN"]),
]


async def test_notice_says_what_a_generator_was(js: Runner) -> None:
    result = await js("(function* () { yield 1 })()")
    assert (result.value, *result.notices) == ([1], "result was an object and became an array")


ROUNDED = """[
  1.005.toLocaleString("en", {style: "currency", currency: "USD"}), 0.285.toLocaleString("en", {style: "percent"}),
  0.1.toLocaleString("en", {maximumFractionDigits: 20}), 5e-7.toLocaleString("en", {style: "percent"}),
]"""


async def test_numbers_are_rounded_as_they_print(js: Runner) -> None:
    assert (await js(ROUNDED)).value == ["$1.01", "29%", "0.1", "0%"]


@pytest.mark.parametrize(("given", "texts"), NUMBERS)
async def test_numbers_print_as_in_en_us(js: Runner, given: str, texts: list[str]) -> None:
    assert (await js(f"[1234567.891, -0.5, 12, NaN].map((n) => n.toLocaleString({given}))")).value == texts


LINES: list[tuple[str, list[int]]] = [
    ("f(\n1)\nif (x)\n  f()", [1, 2, 3, 4]),
    ("try {\n  f()\n} catch {\n  f()\n}\nf()", [6]),
    ("try {\n  f()\n} finally {\n  f()\n}", [1, 2, 3, 4, 5]),
    ("function a() {\n  f()\n}\nfunction b() {\n  f()\n}\nb()", [4, 5, 6, 7]),
    ("const a = async () => {\n  f()\n}\nclass B { m() { a() } }\nnew B().m()", [1, 2, 3, 4, 5]),
    ("f()\n  .catch(\n() => 1)\nf()", [4]),
    ("async function a() { await f() }\na()", [1, 2]),
]


@pytest.mark.parametrize(("script", "lines"), LINES)
async def test_unguarded_lines_are_reached_outside_of_try_and_catch(
    js: Runner, script: str, lines: list[int]
) -> None:
    assert sorted((await prepared(js, script)).unguarded_lines) == lines


REPAIRS: list[tuple[str, str, str]] = [
    ("Here it is:\n```ts\nconst x: number = 1\n```", "\n\nconst x         = 1\n", "Markdown"),
    ("```js\n  1\n```\n", "\n  1\n\n", "Markdown"),
    ("git.log(a=1)\n2", "await git.log({a:1})\n2", "{name: value}"),
    ("const id = 12345678901234567890", "const id = 12345678901234567890n", "digits"),
    ("const n = 9007199254740993", "const n = 9007199254740993n", "digits"),
    ("await mcp__git__log({})", "await git.log({})", "means git.log"),
    ("await time.now({})", "await time_.now({})", "means time_"),
]


@pytest.mark.parametrize(("script", "source", "notice"), REPAIRS)
async def test_repair_keeps_the_lines_and_is_told(js: Runner, script: str, source: str, notice: str) -> None:
    found = await prepared(js, script)
    assert found.source == source
    assert any(notice in each for each in found.notices)


@pytest.mark.parametrize(
    "head",
    [
        "import {git} from 'tools'",
        "import {\n  git,\n} from 'tools';",
        "import git from 'git'",
        "import * as git from 'tools/git'",
        "import * as tools from 'tools'",
        "const {git} = require('tools')",
        "const git = require('git')",
        "const {git} = tools",
        "const {git} = await import('tools')",
        "import type {Git} from 'tools'",
        "import portal, {search} from 'portal'",
    ],
)
async def test_import_of_what_is_there_works_and_keeps_the_lines(js: Runner, head: str) -> None:
    assert await js.value(f"{head}\nconst log = await git.git_log({{count: 2}}); log.count") == 2
    error = await js.error(f"{head}\nawait git.fails({{}})")
    assert error.line == head.count("\n") + 2


async def test_error_about_a_list_tells_what_all_its_items_are(js: Runner) -> None:
    rows = "const rows = ['2 rows', {id: 1, by: null}, {id: 2, 'the day': ['a', 1]}]"
    error = await js.error(f"{rows}\nrows.map((row) => row.by.name)")
    assert error.hint == 'rows is (string | {id: number, by?: null, "the day"?: array})[]'


MISTAKES: list[tuple[str, int | None, str, str]] = [
    (
        "const a = s.split('`'), b = `\n~~~\nawait git.git_log()\n~~~\n`;\nconsole.log(b",
        6,
        "is not closed",
        "",
    ),
    ("const body = `Steps:\n```js\nawait git.git_log()\n```\n`;\nconsole.log(body", 2, "`js`", ""),
    ("const x = = 1", 1, "Unexpected token `=`", ""),
    ("f(1\ng()", 2, "`g`", ""),
    ("const x = {\n  a: [1,", 2, "the `[` in line 2 is not closed", ""),
    ("(" * 1000, None, "nested too deeply", "Split"),
    ("function f() {\n  await g()\n}", 2, "`g`", "async"),
    ("const a = 1\nconst a = 2", 2, "'a' has already been declared", ""),
    ("const a = 1\na = 2", 2, "constant", ""),
    ("def f():\n    return 1", 1, "`f`", 'kernel="python"'),
    ("x = f'{a}'\nfor i in x:\n    print(i)", 1, "", 'kernel="python"'),
    ("import json\nr = await git.log(a=1)\nprint(r)", 2, "", 'kernel="python"'),
    ("namespace N { export const x = 1 }", 1, "namespace", ""),
    ("let x: number = ;", 1, "`;`", ""),
    ("import x = require('y')", 1, "import", ""),
    ("class A {\n  @log run() { return 1 }\n}", 2, "'@'", "decorators"),
]


@pytest.mark.parametrize(("script", "line", "message", "hint"), MISTAKES)
async def test_syntax_error_names_line_and_token(
    js: Runner, script: str, line: int | None, message: str, hint: str
) -> None:
    error = await refused(js, script)
    assert error.line == line
    assert message in error.message and hint in error.hint
    assert re.search(r"\(\d+:\d+\)", error.message) is None


HOSTILE = [
    "(" * 5000,
    "[" * 300 + "]" * 300,
    "1" + "+1" * 50_000,
    "x" + ".y" * 10_000,
    "git" + ".f()" * 2_000,
    "if (1) {}" + " else if (git.f({})) {}" * 2000,
    "`${" * 500,
    "a => " * 2000 + "1",
    "<a>" * 2000,
    "let x: " + "A<" * 2000,
    "\0",
    "'\\ud800'",
    "const " + ",".join(f"v{i}=v{i - 1}" for i in range(1, 2000)),
    "var __proto__ = 1, constructor = 2; __proto__.toString(); ({__proto__: git.f()}).constructor()",
    "a = b = c = a; a.f(); const {a: {b: [q]}} = c",
    "git.f(" * 60 + ")" * 60,
    "\n" * 120_000 + "1",
    ";" * 50_000,
]


@pytest.mark.parametrize("script", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_text_breaks_the_analysis(js: Runner, script: str) -> None:
    found = await prepared(js, script)
    assert found.error is None or found.error.code in ("syntax_error", "memory_limit", "cpu_limit")
    assert found.error is None or "TypeError" not in found.error.message
    assert await js.value("1 + 1") == 2


async def test_session_keeps_what_the_top_level_declares_and_may_declare_it_again(js: Runner) -> None:
    session = await js.sandbox.open_session()
    for script in (
        "const a = 1, {b, c: [d]} = {b: 2, c: [3]}; let e; class F { static x = 4 }\nfunction g() { return a + 1 }",
        "if (true) return 0\nconst late = 1",
    ):
        assert (await js(script, session=session)).error is None
    again = "const a = 5; let [h] = [a]; function g() { return a + 2 }\n[a, b, d, e, F.x, g(), h]"
    result = await js(again, session=session)
    session.close()
    assert result.value == [5, 2, 3, None, 4, 7, 5]


@pytest.mark.parametrize(
    ("leaves", "finds"),
    [
        ("globalThis.left = 1; var other = 2", "'left' in globalThis || 'other' in globalThis"),
        ("Object.prototype.left = 1; Array.prototype.map = null", "({}).left === 1 || [].map === null"),
        (
            "JSON.parse = null; Promise.prototype.then = null; portal.left = 1",
            "!JSON.parse || 'left' in portal",
        ),
        (
            "setInterval(() => console.log('left'), 1)",
            "await new Promise((done) => setTimeout(done, 5)); false",
        ),
        ("Object.defineProperty(globalThis, 'git', {value: 1})", "git === 1"),
        ("const kept = 'secret-of-the-first-run'.repeat(1000)", "typeof kept !== 'undefined'"),
    ],
)
async def test_no_run_finds_what_another_left(js: Runner, leaves: str, finds: str) -> None:
    """They share one worker. What Python leaves is in tests/security/test_leaks.py."""
    await js(f"{leaves}; 1")
    assert await js.value(finds) is False


async def test_namespace_whose_name_a_session_took_is_in_tools(js: Runner) -> None:
    session = await js.sandbox.open_session()
    await js("const git = await git.git_log({count: 1})", session=session)
    async with js.sandbox.run(Limits(), str, session) as run:
        found = await run.prepare("await tools.git.git_log({a: git.count})", NAMESPACES)
    session.close()
    assert ([use[:2] for use in found.uses], found.names) == ([("git", "git_log")], {"git"})


async def test_session_may_declare_the_names_of_built_in_classes(js: Runner) -> None:
    session = await js.sandbox.open_session()
    for script in (
        "const Map = {a: 1}, Symbol = 'AAPL', Set = 2, String = 3, Number = 4",
        "let x: any = Map.a",
    ):
        assert (await js(script, session=session)).error is None
    result = await js("[Map.a, Symbol, x, (await git.git_log({a: 1})).a]", session=session)
    session.close()
    assert result.value == [1, "AAPL", 1, 1]


def test_parsers_are_the_files_whose_sha256_the_notice_gives() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for file in (ROOT / "sandbox_runtime/guest_js/vendor").iterdir():
        assert f"sha256 {sha256(file.read_bytes()).hexdigest()}" in notice
