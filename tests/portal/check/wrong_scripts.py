"""Scripts that cannot run right, each with the line and the code of what is told, and words that are told with it."""

from typing import TypeAlias

Row: TypeAlias = tuple[str, int, str]
"""A script, the line that is told, and what went wrong with the nearest right thing, wherever the answer says them."""

UNKNOWN: list[Row] = [
    ("await wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("async def main():\n    return await wether.forecast(city='x')\nawait main()", 2, "wether weather.forecast"),
    ("import asyncio\nawait asyncio.gather(wether.forecast(city='x'), echo.say(text='a'))", 2, "wether"),
    ("await slack.post_message(channel='x', text='y')", 1, 'slack query="slack post message"'),
    ("from tools import wether\nawait wether.forecast(city='x')", 1, "wether weather"),
    ("from tools.wether import forecast\nawait forecast(city='x')", 1, "wether weather.forecast"),
    ("await tools.wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("rows = [1]\nnp.array(rows).mean()", 2, "np docs_search"),
    ("await github.list_isues(repo='a')", 1, "list_isues github.list_issues"),
    ("await github.getIssue(number=1)", 1, "getIssue github.get_issue number:"),
    ("from tools.github import list_isues", 1, "list_isues github.list_issues"),
    ("from github import list_issue as l\nawait l(repo='a')", 1, "list_issue github.list_issues"),
    ("gh = github\nawait gh.list_isues(repo='a')", 2, "list_isues github.list_issues"),
    ("await tools.github.list_isues(repo='a')", 1, "list_isues github.list_issues"),
    ("class A:\n    async def go(self):\n        return await weather.forcast(city='x')\nawait A().go()", 3, "forcast"),
    ("from asyncio import TaskGroup\nasync with TaskGroup() as t:\n    t.create_task(weather.forcast())", 3, "forcast"),
    ("from tools.github import Issue, get_issue", 1, "'Issue' github.get_issue"),
    ("[await weather.forcast(city=c) for c in ['a', 'b']]", 1, "forcast weather.forecast"),
    ("try:\n    x = 1\nfinally:\n    await echo.nope()", 4, "nope"),
    ("await get_issue(number=1)", 1, "get_issue github.get_issue"),
    ("json.dumps([])", 1, "json import"),
    ("await call_tool('github.get_issue', {'number': 1})", 1, "call_tool github.get_issue(number: int)"),
    ("await call_tool('mcp__github__get_issue', {})", 1, "call_tool github.get_issue(number: int)"),
    ("await mcp.call_tool(server='x', name='github_get_issue')", 1, "call_tool github.get_issue(number: int)"),
    ("await mcp__github__get_isue(number=1)", 1, "get_isue github.get_issue"),
    ("await github_get_issue(number=1)", 1, "github_get_issue github.get_issue(number: int)"),
]  # fmt: skip

ARGUMENTS: list[Row] = [
    ("await github.list_issues()", 1, "repo str"),
    ("github.list_issues()", 1, "repo str"),
    ("start = github.list_issues\nawait start()", 2, "github.list_issues repo"),
    ("import asyncio\nawait asyncio.gather(echo.say(text='a'), echo.say())", 2, "text"),
    ("await github.create_issue(issue={'priority': 'low'})", 1, "issue title"),
    ("await github.list_issues(repo='a', lables=['x'])", 1, "lables labels"),
    ("await github.list_issues(repo='a', per_page=10)", 1, "per_page limit"),
    ("await github.create_issue(issue={'title': 'a', 'prio': 'low'})", 1, "prio priority"),
    ("who = 'a'\nawait github.list_issues(repo=who, assignee=who)", 2, "assignee"),
    ("def start(x):\n    return echo.say(txt=x)\nawait start('a')", 2, "txt text"),
    ("await github.list_issues(repo='a', state='opne')", 1, "opne open closed"),
    ("state = 'opne'\nawait github.list_issues(repo='a', state=state)", 2, "opne open"),
    ("await github.list_issues(repo=None)", 1, "repo None"),
    ("await github.list_issues(repo=['a'])", 1, "repo list"),
    ("await github.list_issues(repo='a', limit=-3)", 1, "limit -3"),
    ("await github.list_issues(repo='a', limit=2.5)", 1, "limit 2.5 int"),
    ("await github.list_issues(repo='a', labels=['bug', None])", 1, "labels[1] None"),
    ("await github.list_issues(repo='a', labels=[x for x in 'ab'], ratio='high')", 1, "ratio high number"),
    ("await weather.forecast(city='x', days=30)", 1, "days 30 7"),
    ("rows = [1]\nawait github.list_issues(repo=sorted(rows))", 2, "repo list str"),
    ("x = 5.5\nawait echo.say(text=x)", 2, "text float str"),
    ("rows = [{}]\nfor row in rows:\n    await echo.say(text=row)", 3, "text dict str"),
    ("from __future__ import annotations\n'ß'; await echo.say(text=['a'])", 2, "text list"),
    ("calls = [echo.say(txt=c) for c in 'ab']\nimport asyncio\nawait asyncio.gather(*calls)", 1, "txt text"),
    ("async with asyncio.TaskGroup() as tg:\n    t = tg.create_task(echo.say(txt=1))\nt.result()", 2, "txt text"),
    ("async def one(n):\n    return await echo.say(txt=n)\nawait asyncio.gather(*map(one, 'ab'))", 2, "txt text"),
    ("ask = lambda n: echo.say(txt=n)\nawait ask(1)", 1, "txt text"),
    ("for n in range(1):\n    await echo.say(txt=n)", 2, "txt text"),
    ("match 1:\n    case 1:\n        await echo.say(txt=1)", 3, "txt text"),
    ("class A:\n    def __init__(self, n):\n        self.r = echo.say(txt=n)\nA(1)", 3, "txt text"),
    ("weather: dict = await weather.forecast(town='x')", 1, "town city"),
    ("for weather in (await weather.forecast(town='x'))['days']:\n    pass", 1, "town city"),
]  # fmt: skip

FIELDS: list[Row] = [
    ("r = await github.list_issues(repo='a')\nr.rows", 2, 'rows ["rows"]'),
    ("r = await github.get_issue(number=1)\nr.title", 2, 'title ["title"]'),
    ("r = await github.list_issues(repo='a')\nr.content[0].text", 2, "content itself returns {items: list[{"),
    ("r = await echo.shout(text='x')\nr.content[0].text", 2, 'Write r["text"].'),
    ("r = await echo.shout(text='x')\nr.text.title()", 2, 'Write ["text"].'),
    ("r = await echo.odd(text='x')\nr.content", 2, "itself"),
    ("(await weather.forecast(city='x')).isError", 1, "ToolError"),
    ("r = await github.list_issues(repo='a')\nr['items'][0].number", 2, 'number ["number"]'),
    ("(await github.get_issue(number=1)).number", 1, '["number"]'),
    ("github.get_issue(number=1).number", 1, '["number"]'),
    ("r = await github.list_issues(repo='a')\nfor row in r['items']:\n    print(row.title)", 3, '["title"]'),
    ("r = await github.search_issues(query='x')\nr.length", 2, "len("),
    ("rs = await asyncio.gather(*[github.get_issue(number=n) for n in [1, 2]])\n[r.body for r in rs]", 2, '["body"]'),
    ("async def go():\n    r = await github.get_issue(number=1)\n    return f'{r.body}'\nawait go()", 3, '["body"]'),
    ("if (r := await github.get_issue(number=1)):\n    print(r.body)", 2, '["body"]'),
]  # fmt: skip

AWAITS: list[Row] = [
    ("def f():\n    return github.list_issues(repo='a')['items']\nf()", 2, "github.list_issues async"),
    ("sum(github.get_issue(number=n)['number'] for n in [1])", 1, "github.get_issue"),
    ("f = lambda: github.get_issue(number=1)['number']\nf()", 1, "github.get_issue async"),
    (
        "def f():\n    c = github.get_issue(number=1)\n    for x in c: print(x)\nf()",
        2,
        "github.get_issue async",
    ),
    ("class A:\n    rows = github.list_issues(repo='a')['items']", 2, "github.list_issues"),
    ("async def main():\n    return await github.get_issue(number=1)\nx = main()\nx['a']", 4, "await"),
]

REFUSED = [
    *((*row, "unknown_function") for row in UNKNOWN),
    *((*row, "invalid_arguments") for row in ARGUMENTS),
    *((*row, "unknown_field") for row in FIELDS),
    *((*row, "not_awaited") for row in AWAITS),
    ("await github.get_issue", 1, "github.get_issue(...)", "not_called"),
    ("github(repo='a')", 1, "github namespace", "not_a_function"),
    ("await github.delete_repo(repo='a')", 1, "github.delete_* operator", "not_granted"),
    (
        "from tools.github import delete_repo\nawait delete_repo(repo='a')",
        1,
        "github.delete_*",
        "not_granted",
    ),
    ("await offline.anything(a=1)", 1, "offline down", "upstream_unavailable"),
]

TOLD: list[tuple[str, int, str, str]] = [
    ("r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'])", 2, "text list", "invalid_arguments"),
    ("r = await github.get_issue(number=1)\nawait echo.say(text=r)", 2, "text Issue str", "invalid_arguments"),
    ("r = await github.list_issues(repo='a')\nr['itms']", 2, "itms items", "unknown_field"),
    ("r = await weather.forecast(city='x')\n[day['dat'] for day in r['days']]", 2, "dat date", "unknown_field"),
    ("try:\n    await echo.say()\nexcept ToolError as e:\n    print(e)", 2, "text", "invalid_arguments"),
    ("with suppress(Exception):\n    await echo.say(text=[])\n", 2, "text", "invalid_arguments"),
    ("async def unused():\n    return await echo.nope()\n5", 2, "nope", "unknown_function"),
    ("r = await github.list_issues(repo='a')\nfor x in r: print(x)", 2, "keys {items: list[{", "keys_only"),
    ("r = await github.list_issues(repo='a')\nlen(r)", 2, "keys total?: int", "keys_only"),
    ("'crash' in await github.list_issues(repo='a')", 1, "keys {items:", "keys_only"),
    ("r = await github.list_issues(repo='a')\nr.get('rows', [])", 2, "'rows' {items:", "keys_only"),
    ("try:\n    r = await slack.post(x=1)\nexcept NameError:\n    r = 5", 2, "slack", "unknown_function"),
]  # fmt: skip
"""What is no reason to refuse: a result may be otherwise than it declares, and what is in a `try` may fail."""
