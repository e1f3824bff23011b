"""The same scripts in each kernel's language. `{...}` is filled in by the tests."""

from manifests.kernels import KernelName

SCRIPTS: dict[str, dict[KernelName, str]] = {
    "value": {
        "python": "{'a': [1, None, True, 'é'], 'big': 12345678901234567890}",
        "javascript": "({a: [1, null, true, 'é'], big: 12345678901234567890n})",
    },
    "call": {
        "python": "await git.git_log(count=3, id=9007199254740993)",
        "javascript": "await git.git_log({count: 3, id: 9007199254740993n})",
    },
    "positional": {"python": "await git.git_log(3, 'x')", "javascript": "await git.git_log(3, 'x')"},
    "hundred": {
        "python": "rows = await asyncio.gather(*[git.git_log(i=i) for i in range(100)])\n[row['i'] for row in rows]",
        "javascript": "const rows = await Promise.all([...Array(100).keys()].map((i) => git.git_log({i})));\n"
        "rows.map((row) => row.i)",
    },
    "many_lines": {
        "python": "text = '''" + "a\n" * 120_000 + "'''\nlen(text)",
        "javascript": "const text = `" + "a\n" * 120_000 + "`;\ntext.length",
    },
    "long_texts": {
        "python": "rows = await asyncio.gather(*[git.git_log(text='%s' * 10_000) for _ in range(110)])\n"
        "[len(row['text']) for row in rows]",
        "javascript": "const rows = await Promise.all(Array.from({length: 110}, () => "
        "git.git_log({text: '%s'.repeat(10_000)})));\nrows.map((row) => [...row.text].length)",
    },
    "constants": {
        "python": "import math\ndef seen(a):\n    x, y, z = a['x'], a['y'], a['z']\n"
        "    return [math.isnan(x) and math.isnan(z[2]), y == -z[0] == math.inf, z[1]]\n"
        "a = await git.git_log()\ntry:\n    await git.fails()\nexcept ToolError as e:\n    data = e.data\n"
        "[seen(a), seen(portal.blocks(a)[1]), seen(data)]",
        "javascript": "const seen = ({x, y, z}) => "
        "[x === null && z[2] === null, y === Infinity && z[0] === -Infinity, z[1]];\n"
        "const a = await git.git_log({}); let data;\ntry { await git.fails({}) } catch (e) { data = e.data }\n"
        "[seen(a), seen(portal.blocks(a)[1]), seen(data)]",
    },
    "caught": {
        "python": "try:\n    await git.fails()\nexcept portal.ToolError as e:\n    r = [e.code, str(e), e.hint]\nr",
        "javascript": "let r;\ntry { await git.fails({}) } catch (e) { r = [e.code, e.message, e.hint] }\nr",
    },
    "uncaught": {"python": "x = 1\nawait git.fails()", "javascript": "let x = 1;\nawait git.fails({})"},
    "raised": {"python": "x = 1\n1 / 0", "javascript": "let x;\nx.y"},
    "syntax": {"python": "x = 1\ndef f(:", "javascript": "let x = 1;\nfunction f( {"},
    "output": {
        "python": "print('a', {'b': 1})\nawait git.git_log()\nprint('c')",
        "javascript": "console.log('a', {b: 1});\nawait git.git_log({});\nconsole.log('c')",
    },
    "flood": {
        "python": "print('é' * 1000)\nprint('later')\n7",
        "javascript": "console.log('é'.repeat(1000)); console.log('later'); 7",
    },
    "emit": {
        "python": "portal.emit({'type': 'text', 'text': 'x' * 50})",
        "javascript": "portal.emit({type: 'text', text: 'x'.repeat(50)})",
    },
    "hang": {"python": "await git.hangs()", "javascript": "await git.hangs({})"},
    "deadlock": {"python": "await asyncio.Event().wait()", "javascript": "await new Promise(() => {})"},
    "spin": {"python": "while True: pass", "javascript": "for (;;);"},
    "regex": {
        "python": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
        "javascript": "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    },
    "memory": {
        "python": "x = []\nwhile True: x.append('x' * 10_000)",
        "javascript": "const x = [];\nfor (;;) x.push('x'.repeat(10_000) + x.length);",
    },
    "caught_memory": {
        "python": "try:\n    x = bytes(10**9)\nexcept MemoryError:\n    x = 1\nx",
        "javascript": "let x;\ntry { x = new Uint8Array(1e9) } catch { x = 1 }\nx",
    },
    "many_calls": {
        "python": "await asyncio.gather(*[git.git_log() for _ in range(200)], return_exceptions=True)",
        "javascript": "await Promise.allSettled([...Array(200)].map(() => git.git_log({})))",
    },
    "one_call_too_many": {
        "python": "for i in range(4): await git.git_log(i=i)",
        "javascript": "for (let i = 0; i < 4; i++) await git.git_log({i})",
    },
    "long_argument": {
        "python": "await git.git_log(x='x' * 3000)",
        "javascript": "await git.git_log({x: 'x'.repeat(3000)})",
    },
    "long_result": {"python": "'x' * 3000", "javascript": "'x'.repeat(3000)"},
    "not_json": {"python": "[lambda: 1]", "javascript": "[() => 1]"},
    "cycle": {"python": "x = []\nx.append(x)\nx", "javascript": "const x = [];\nx.push(x);\nx"},
    "recursion": {"python": "def f(): f()\nf()", "javascript": "function f() { f() }\nf()"},
    "nesting": {"python": "eval('(' * 90000 + ')' * 90000)", "javascript": "(0, eval)('('.repeat(50000))"},
    "not_awaited": {
        "python": "calls = []\ncalls.append(git.git_log())\n5",
        "javascript": "const list = [];\nlist.push(git.git_log({}));\n5",
    },
    "exit": {"python": "import sys\nsys.exit(3)", "javascript": "throw 3"},
    "keep": {"python": "kept = [1]", "javascript": "const kept = [1];\nlet count = 1"},
    "kept": {
        "python": "kept.append(2)\nkept",
        "javascript": "kept.push(2); count = 2;\nconst again = kept;\nagain",
    },
    "random": {"python": "import random\nrandom.random()", "javascript": "Math.random()"},
    "unknown": {"python": "await git.git_lag()", "javascript": "await git.git_lag({})"},
    "clock": {
        "python": "import time\n[time.time(), time.localtime().tm_gmtoff]",
        "javascript": "[Date.now() / 1000, new Date().getTimezoneOffset()]",
    },
    "race": {
        "python": "import random, time\nout = []\nasync def one(i):\n"
        "    out.append((await git.git_log(i=i))['chance'])\n"
        "await asyncio.gather(*[one(i) for i in range(20)])\nawait asyncio.sleep(0.01)\n"
        "[out, random.random(), time.time()]",
        "javascript": "const out = [];\nconst one = async (i) => { out.push((await git.git_log({i})).chance) };\n"
        "await Promise.all([...Array(20).keys()].map(one));\n"
        "await new Promise((done) => setTimeout(done, 10));\n[out, Math.random(), Date.now(), crypto.randomUUID()]",
    },
}
