"""Scripts that cannot run right, each with the line and the code of what is told, and words that must be told with it.

The words are what went wrong and the nearest right thing, wherever the answer says them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """One script, and what is told of it."""

    text: str
    line: int
    code: str
    words: tuple[str, ...]


def _wrong(code: str, *rows: tuple[str, int, str]) -> list[Wrong]:
    return [Wrong(text, line, code, tuple(words.split())) for text, line, words in rows]


UNKNOWN_NAMESPACES = _wrong(
    "unknown_function",
    ("await wether.forecast(city='x')", 1, "wether weather.forecast docs_search"),
    ("wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("await gihtub.list_issues(repo='a')", 1, "gihtub github.list_issues"),
    ("await git_hub.get_issue(number=1)", 1, "git_hub github.get_issue"),
    ("rows = []\nfor city in 'ab':\n    rows.append(await wether.forecast(city=city))", 3, "wether weather.forecast"),
    ("async def main():\n    return await wether.forecast(city='x')\nawait main()", 2, "wether weather.forecast"),
    ("import asyncio\nawait asyncio.gather(wether.forecast(city='x'), echo.say(text='a'))", 2, "wether"),
    ("await slack.post_message(channel='x', text='y')", 1, 'slack query="slack post message"'),
    ("if 1 < 2:\n    x = await jira.get_issue(number=1)", 2, "jira github.get_issue"),
    ("from tools import wether\nawait wether.forecast(city='x')", 1, "wether weather"),
    ("from tools.wether import forecast\nawait forecast(city='x')", 1, "wether weather.forecast"),
    ("await tools.wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("f = lambda c: wether.forecast(city=c)\nawait f('x')", 1, "wether weather.forecast"),
    ("rows = [1]\nnp.array(rows).mean()", 2, "np docs_search"),
    ("print('slack')\nawait slack.post_message(channel='slack')", 2, "slack docs_search"),
    ("print(dir(tools), '')\nfrom tools import wether", 2, "wether weather"),
)  # fmt: skip

UNKNOWN_FUNCTIONS = _wrong(
    "unknown_function",
    ("await github.list_isues(repo='a')", 1, "list_isues github.list_issues docs_search"),
    ("github.list_isues(repo='a')", 1, "list_isues github.list_issues"),
    ("await github.issues_list(repo='a')", 1, "issues_list github.list_issues"),
    ("await github.getIssue(number=1)", 1, "getIssue github.get_issue"),
    ("await github.get_issues(number=1)", 1, "get_issues github.get_issue number:"),
    ("await echo.whisper(text='a')", 1, 'whisper query="whisper"'),
    ("from tools.github import list_isues", 1, "list_isues github.list_issues"),
    ("from github import list_issue as l\nawait l(repo='a')", 1, "list_issue github.list_issues"),
    ("import github as gh\nawait gh.list_isues(repo='a')", 2, "list_isues github.list_issues"),
    ("gh = github\nawait gh.list_isues(repo='a')", 2, "list_isues github.list_issues"),
    ("f = github.list_isues\nawait f(repo='a')", 1, "list_isues github.list_issues"),
    ("await tools.github.list_isues(repo='a')", 1, "list_isues github.list_issues"),
    ("if await weather.forcast(city='x'):\n    pass", 1, "forcast weather.forecast"),
    ("while True:\n    x = await weather.forcast(city='x')\n    break", 2, "forcast weather.forecast"),
    ("class A:\n    async def go(self):\n        return await weather.forcast(city='x')\nawait A().go()", 3, "forcast"),
    ("from asyncio import TaskGroup\nasync with TaskGroup() as t:\n    t.create_task(weather.forcast())", 3, "forcast"),
    ("try:\n    await weather.forcast(city='x')\nexcept KeyError:\n    pass", 2, "forcast weather.forecast"),
    ("from tools.github import Issue, get_issue", 1, "github.Issue type TYPE_CHECKING"),
    ("def f(i): return isinstance(i, github.Issue)\nf({})", 1, "github.Issue type dict"),
    ("[await weather.forcast(city=c) for c in ['a', 'b']]", 1, "forcast weather.forecast"),
)  # fmt: skip

MISSING_ARGUMENTS = _wrong(
    "invalid_arguments",
    ("await github.list_issues()", 1, "repo str"),
    ("github.list_issues()", 1, "repo str"),
    ("await weather.forecast(days=2)", 1, "city"),
    ("await github.create_issue()", 1, "issue"),
    ("await github.create_issue(dry_run=True)", 1, "issue"),
    ("x = 1\nrows = await github.list_issues(\n    state='open',\n)", 2, "repo"),
    ("for n in range(2):\n    await github.get_issue()", 2, "number"),
    ("from tools import github as gh\nawait gh.list_issues()", 2, "github.list_issues repo"),
    ("from tools.github import list_issues as l\nawait l()", 2, "github.list_issues repo"),
    ("start = github.list_issues\nawait start()", 2, "github.list_issues repo"),
    ("import asyncio\nawait asyncio.gather(echo.say(text='a'), echo.say())", 2, "text"),
    ("import asyncio\nasyncio.run(echo.say())", 2, "text"),
    ("async def one():\n    return await echo.say()\nawait one()", 2, "text"),
    ("r = await github.get_issue(number=1) if 1 else await github.get_issue()\nawait echo.say()", 2, "text"),
    ("await github.create_issue(issue={'priority': 'low'})", 1, "issue title"),
)  # fmt: skip

UNKNOWN_ARGUMENTS = _wrong(
    "invalid_arguments",
    ("x = 1\n\nawait github.list_issues(\n  repo='a',\n  stat='open',\n)", 3, "stat state"),
    ("await github.list_issues(repo='a', lables=['x'])", 1, "lables labels"),
    ("await github.list_issues(repo='a', per_page=10)", 1, "per_page limit"),
    ("await weather.forecast(town='x')", 1, "town city"),
    ("await weather.forecast(city='x', unit='metric')", 1, "unit units"),
    ("await echo.say(txt='a')", 1, "txt text"),
    ("async def main():\n    return await echo.say(txt='a')\nawait main()", 2, "txt text"),
    ("await github.create_issue(issue={'title': 'a', 'prio': 'low'})", 1, "prio priority"),
    ("await github.list_issues(repo='a', filter={'by': 'x', 'q': 1})", 1, "filter q by"),
    ("await github.list_issues(arguments={'repo': 'a', 'stat': 'open'})", 1, "stat state"),
    ("await github.search_issues(q='x')", 1, "q query"),
    ("who = 'a'\nawait github.list_issues(repo=who, assignee=who)", 2, "assignee"),
    ("def start(x):\n    return echo.say(txt=x)\nawait start('a')", 2, "txt text"),
)  # fmt: skip

WRONG_LITERALS = _wrong(
    "invalid_arguments",
    ("await github.list_issues(repo='a', state='opne')", 1, "opne open closed"),
    ("await github.list_issues(repo='a', state='OPEN')", 1, "OPEN open closed"),
    ("await github.list_issues(repo='a', state='all')", 1, "all open closed"),
    ("state = 'opne'\nawait github.list_issues(repo='a', state=state)", 2, "opne open"),
    ("await weather.forecast(city='x', units='celsius')", 1, "celsius metric imperial"),
    ("await github.create_issue(issue={'title': 'a', 'priority': 'urgent'})", 1, "priority urgent low high"),
    ("await github.search_issues(query='x', sort='newest')", 1, "newest created updated"),
    ("await github.search_issues(query='x', sort=1)", 1, "sort created"),
    ("from github import search_issues\nawait search_issues(query='x', sort='newest')", 2, "newest created"),
)  # fmt: skip

ILL_TYPED_ARGUMENTS = _wrong(
    "invalid_arguments",
    ("await github.list_issues(repo=None)", 1, "repo None"),
    ("await github.list_issues(repo=['a'])", 1, "repo list"),
    ("await github.list_issues(repo={'name': 'a'})", 1, "repo dict"),
    ("await github.list_issues(repo=True)", 1, "repo True"),
    ("await github.list_issues(repo=1.5)", 1, "repo 1.5"),
    ("await github.list_issues(repo='a', limit='ten')", 1, "limit ten int"),
    ("await github.list_issues(repo='a', limit=-3)", 1, "limit -3"),
    ("await github.list_issues(repo='a', limit=True)", 1, "limit True"),
    ("await github.list_issues(repo='a', limit=2.5)", 1, "limit 2.5 int"),
    ("await github.list_issues(repo='a', limit=[3])", 1, "limit list int"),
    ("await github.list_issues(repo='a', labels='bug, ui')", 1, "labels list"),
    ("await github.list_issues(repo='a', labels=['bug', None])", 1, "labels[1] None"),
    ("await github.list_issues(repo='a', labels=[x for x in 'ab'], ratio='high')", 1, "ratio high number"),
    ("await github.list_issues(repo='a', filter={})", 1, "filter by"),
    ("await github.list_issues(repo='a', filter='age')", 1, "filter dict"),
    ("await github.list_issues(repo='a', filter=['by'])", 1, "filter dict"),
    ("await github.list_issues(repo='a', target=[1])", 1, "target"),
    ("await github.list_issues(repo='a', target=None, limit=0)", 1, "limit 0"),
    ("await weather.forecast(city='x', days=30)", 1, "days 30 7"),
    ("import asyncio\nawait asyncio.wait_for(echo.say(text=['a']), 5)", 2, "text list str"),
    ("if 1:\n    return await echo.say(text=[1])", 2, "text list"),
    ("from __future__ import annotations\n'ß'; await echo.say(text=['a'])", 2, "text list"),
    ("await github.create_issue(issue={'title': ''})", 1, "title"),
    ("await github.create_issue(issue={'title': 'a', 'assignees': ['me']})", 1, "assignees dict"),
)  # fmt: skip

POSITIONAL_ARGUMENTS = _wrong(
    "invalid_arguments",
)  # fmt: skip

RESULT_ATTRIBUTES = _wrong(
    "unknown_field",
    ("r = await github.list_issues(repo='a')\nr.rows", 2, 'github.list_issues rows ["rows"]'),
    ("r = await github.list_issues(repo='a')\nr['items'][0].number", 2, 'number ["number"]'),
    ("r = await github.get_issue(number=1)\nr.body", 2, 'github.get_issue ["body"]'),
    ("(await github.get_issue(number=1)).number", 1, '["number"]'),
    ("github.get_issue(number=1).number", 1, '["number"]'),
    ("r = await github.list_issues(repo='a')\nfor row in r['items']:\n    print(row.number)", 3, '["number"]'),
    ("r = await github.list_issues(repo='a')\n[row.number for row in r['items']]", 2, '["number"]'),
    ("r = await github.search_issues(query='x')\nr[0].label", 2, '["label"]'),
    ("r = await github.search_issues(query='x')\nr.length", 2, "len("),
    ("rs = await asyncio.gather(*[github.get_issue(number=n) for n in [1, 2]])\n[r.body for r in rs]", 2, '["body"]'),
    ("async def go():\n    r = await github.get_issue(number=1)\n    return f'{r.body}'\nawait go()", 3, '["body"]'),
    ("if (r := await github.get_issue(number=1)):\n    print(r.body)", 2, '["body"]'),
    ("r = await weather.forecast(city='x')\nr.get('days')[0].date", 2, '["date"]'),
    (
        "import heapq, json, operator\nr = (await github.list_issues(repo='a'))['items']\nprint(json.dumps(r))\n"
        "heapq.nlargest(1, r, key=operator.itemgetter('number'))\nrows = []\n[*map(rows.append, r)]\nr[0].number",
        7,
        '["number"]',
    ),
)  # fmt: skip

MISSING_AWAITS = _wrong(
    "not_awaited",
    ("def f():\n    return github.list_issues(repo='a')['items']\nf()", 2, "github.list_issues async"),
    ("sum(github.get_issue(number=n)['number'] for n in [1])", 1, "github.get_issue"),
    ("f = lambda: github.get_issue(number=1)['number']\nf()", 1, "github.get_issue async"),
    ("def f():\n    c = github.get_issue(number=1)\n    for x in c: print(x)\nf()", 3, "github.get_issue"),
    ("def titles():\n    return [i['title'] for i in github.list_issues(repo='a')]\ntitles()", 2, "github.list_issues"),
    ("class A:\n    rows = github.list_issues(repo='a')['items']", 2, "github.list_issues"),
    ("def first():\n    return github.get_issue(number=1).title\nfirst()", 2, "github.get_issue"),
    ("any(github.get_issue(number=n)['title'] for n in range(3))", 1, "github.get_issue"),
)  # fmt: skip

NOT_JSON = _wrong(
    "invalid_arguments",
    ("import datetime\nawait echo.say(text=datetime.date.today())", 2, "text date isoformat"),
    ("from datetime import datetime\nnow = datetime.now()\nawait echo.say(text=now)", 3, "text datetime isoformat"),
    ("await github.list_issues(repo='a', labels={'a', 'b'})", 1, "labels set list(value)"),
    ("await github.list_issues(repo='a', labels={n for n in 'ab'})", 1, "labels set list(value)"),
    ("await github.list_issues(repo='a', labels=map(str, [1]))", 1, "labels map list(value)"),
    ("seen = set()\nseen.add('a')\nawait github.list_issues(repo='a', labels=seen)", 3, "labels set list(value)"),
    ("await github.list_issues(repo=b'a')", 1, "repo bytes decode"),
    ("x: list = {'a'}\nawait echo.say(text=x)", 2, "text set"),
)  # fmt: skip

NOT_CALLED = _wrong(
    "not_called",
    ("await github.get_issue", 1, "github.get_issue number:"),
    ("get = github.get_issue\nawait get", 2, "github.get_issue number:"),
)  # fmt: skip

FORBIDDEN_CALLS = _wrong(
    "not_granted",
    ("await github.delete_repo(repo='a')", 1, "github.delete_* portal.yaml"),
    ("github.delete_repo(repo='a')", 1, "github.delete_* portal.yaml"),
    ("from tools.github import delete_repo\nawait delete_repo(repo='a')", 1, "github.delete_*"),
    ("import github as gh\nawait gh.delete_repo(repo='a')", 2, "github.delete_*"),
    ("x = await echo.say(text='a')\nif x:\n    await github.delete_repo(repo='a')", 3, "github.delete_*"),
    ("drop = github.delete_repo\nawait drop(repo='a')", 1, "github.delete_*"),
    ("await weather.admin_reset()", 1, "weather.admin_reset portal.yaml"),
    ("import asyncio\nawait asyncio.gather(*[github.delete_repo(repo=r) for r in 'ab'])", 2, "github.delete_*"),
)  # fmt: skip

UNAVAILABLE = _wrong(
    "upstream_unavailable",
    ("await offline.anything(a=1)", 1, "offline down"),
    ("from tools.offline import anything", 1, "offline down"),
    ("r = await echo.say(text='a')\nawait offline.anything(a=r)", 2, "offline down"),
)  # fmt: skip

NOT_FUNCTIONS = _wrong(
    "not_a_function",
    ("github(repo='a')", 1, "github namespace"),
    ("await github(repo='a')", 1, "github namespace"),
    ("gh = github\nawait gh(repo='a')", 2, "github namespace"),
    ("import asyncio\nawait asyncio.gather(weather(city='x'))", 2, "weather namespace"),
)  # fmt: skip

DRY = "async def clean(dry=True):\n    if dry:\n        return 5\n    await echo.say(txt=1)\n"
# What comes after something that looks like the end of a block and is none.
REACHED = _wrong(
    "invalid_arguments",
    ("while True:\n    r = 1\n    break\nawait echo.say(txt=r)", 4, "txt text"),
    ("while True:\n    for n in 'ab':\n        pass\n    else:\n        break\nawait echo.say(txt=1)", 6, "txt text"),
    ("for n in range(1):\n    await echo.say(txt=n)", 2, "txt text"),
    ("match 1:\n    case 1:\n        await echo.say(txt=1)", 3, "txt text"),
    ("match 1:\n    case 2:\n        return 5\nawait echo.say(txt=1)", 4, "txt text"),
    ("if len('a') > 5:\n    return 5\nawait echo.say(txt=1)", 3, "txt text"),
    ("DRY: bool = False\nif not DRY:\n    await echo.say(txt=1)", 3, "txt text"),
    ("mode, n = 'read', 3\nif mode == 'read' and n + 1 == 4:\n    await echo.say(txt=1)", 3, "txt text"),
    ("rows: list = []\nrows.append(1)\nfor row in rows:\n    await echo.say(txt=1)", 4, "txt text"),
    ("match 'a':\n    case 'a' | 'b':\n        await echo.say(txt=1)", 3, "txt text"),
    ("async def f(dry=True):\n    if dry:\n        return 5\n    await echo.say(txt=1)\nawait f(False)", 4, "txt"),
    (f"{DRY}run = clean\nawait clean()\nawait run(False)", 4, "txt text"),
    (f"{DRY}await clean(**{{'dry': False}})", 4, "txt text"),
    (f"class A:\n    async def clean(self): pass\n{DRY}await clean(not 1)", 6, "txt text"),
    ("x: str = 5.5\nawait echo.say(text=x)", 2, "text 5.5"),
    ("x = y = 5.5\nawait echo.say(text=y)", 2, "text 5.5"),
    ("def f(text):\n    return echo.say(text=text)\nawait f(None)", 2, "text None"),
    ("def f(dry):\n    if dry:\n        echo.nope()\nf(0)\nawait echo.say(txt=1)", 5, "txt text"),
    ("def check(x):\n    if not x:\n        raise KeyError\ncheck(1)\nawait echo.say(txt=1)", 5, "txt text"),
    ("try:\n    x = int('5')\nexcept ValueError:\n    return 5\nawait echo.say(txt=x)", 5, "txt text"),
    ("from contextlib import nullcontext\nwith nullcontext():\n    x = 5\nawait echo.say(txt=x)", 4, "txt text"),
    ("import sys\n[sys.exit(0) for _ in []]\nawait echo.say(txt=1)", 3, "txt text"),
    ("import sys\nclass A:\n    def stop(self):\n        sys.exit(0)\nawait echo.say(txt=1)", 5, "txt text"),
    ("import sys\nf = lambda: sys.exit(0)\nawait echo.say(txt=1)", 3, "txt text"),
    ("f = open\nf.close\nawait echo.say(txt=1)", 3, "txt text"),
)  # fmt: skip

# What the check has to follow to the place where it fails.
TASK = "async def one(n):\n    return await echo.say(txt=n)\n"
FOLLOWED = _wrong(
    "invalid_arguments",
    ("calls = [echo.say(txt=c) for c in 'ab']\nimport asyncio\nawait asyncio.gather(*calls)", 1, "txt text"),
    ("calls = []\nfor c in 'ab':\n    calls.append(echo.say(txt=c))\nawait asyncio.gather(*calls)", 3, "txt text"),
    ("t = asyncio.create_task(echo.say(txt=1))\nawait t", 1, "txt text"),
    ("async with asyncio.TaskGroup() as tg:\n    t = tg.create_task(echo.say(txt=1))\nt.result()", 2, "txt text"),
    (f"{TASK}await asyncio.gather(*map(one, 'ab'))", 2, "txt text"),
    (f"{TASK}await asyncio.gather(*(one(n) for n in 'ab'))", 2, "txt text"),
    (f"{TASK}import asyncio\nif __name__ == '__main__':\n    asyncio.run(one(1))", 2, "txt text"),
    (f"import functools\n@functools.lru_cache\n{TASK}await one(1)", 4, "txt text"),
    ("async def rows():\n    for n in 'ab':\n        yield await echo.say(txt=n)\n[r async for r in rows()]", 3, "txt"),
    ("def ask():\n    return echo.say(txt=1)\nawait ask()", 2, "txt text"),
    ("ask = lambda n: echo.say(txt=n)\nawait ask(1)", 1, "txt text"),
    ("await (lambda: echo.say(txt=1))()", 1, "txt text"),
    ("lock = asyncio.Lock()\nasync with lock:\n    await echo.say(txt=1)", 3, "txt text"),
    ("with open('/dev/null') as f:\n    await echo.say(txt=1)", 2, "txt text"),
    (
        "class A:\n    async def go(self):\n        return await self._go(1)\n    async def _go(self, n):\n"
        "        return await echo.say(txt=n)\nawait A().go()",
        5,
        "txt text",
    ),
    (
        "from dataclasses import dataclass\n@dataclass\nclass Job:\n    n: int\n    async def run(self):\n"
        "        await echo.say(txt=self.n)\njob = Job(1)\nawait job.run()",
        6,
        "txt text",
    ),
    ("class A:\n    def __init__(self, n):\n        self.r = [*echo.say(txt=n)]\nA(1)", 3, "txt text"),
    ("try:\n    x = await echo.say(txt=1)\nfinally:\n    print('x')", 2, "txt text"),
    ("opts = {'repo': 'a', 'state': 'opne'}\nawait github.list_issues(**opts)", 2, "opne open"),
    ("opts = dict(repo='a', stat='open')\nawait github.list_issues(**opts)", 2, "stat state"),
    ("labels = ['bug', None]\nawait github.list_issues(repo='a', labels=labels)", 2, "labels[1] None"),
    ("state = ['open', 'closed']\nawait github.list_issues(repo='a', state=state)", 2, "state"),
)  # fmt: skip

# Wherever it stands, it is come to.
PLACES = _wrong(
    "unknown_function",
    ("x = [*await echo.nope(a=1)]", 1, "nope"),
    ("x = {**await echo.nope(a=1)}", 1, "nope"),
    ("del (await echo.nope(a=1))['x']", 1, "nope"),
    ("assert await echo.nope(a=1)", 1, "nope"),
    ("raise ValueError(await echo.nope(a=1))", 1, "nope"),
    ("match await echo.nope(a=1):\n    case _:\n        pass", 1, "nope"),
    ("async with echo.lock() as x:\n    pass", 1, "lock"),
    ("def pick(x):\n    return x\npick(await echo.nope(a=1))", 3, "nope"),
    ("while (page := 1) < 3:\n    await echo.nope(page=page)\n    break", 2, "nope"),
    ("class A:\n    x = echo.nope", 2, "nope"),
    ("def f(x=echo.nope):\n    return 5\nf()", 1, "nope"),
)  # fmt: skip

# A namespace whose name gets another value.
RENAMED = _wrong(
    "invalid_arguments",
    ("weather: dict = await weather.forecast(town='x')", 1, "town city"),
    ("(weather := await weather.forecast(town='x'))", 1, "town city"),
    ("for weather in (await weather.forecast(town='x'))['days']:\n    pass", 1, "town city"),
    ("weather, n = await weather.forecast(town='x'), 1", 1, "town city"),
)  # fmt: skip

# What only the sandbox's Python can read as it stands.
NEWER_PYTHON = [
    *_wrong(
        "invalid_arguments",
        ("def f[T](x: T) -> T:\n    return x\nawait echo.say(txt=f(1))", 3, "txt text"),
        ("class A[T]:\n    pass\nawait echo.say(txt=1)", 3, "txt text"),
        ("try:\n    x = 1\nexcept KeyError, ValueError:\n    pass\nawait echo.say(txt=1)", 5, "txt text"),
        ('x = {\'a\': 1}\nf"{x["a"]}"\nawait echo.say(txt=1)', 3, "txt text"),
    ),
    *_wrong(
        "unknown_function",
        ("type X = list[int]\nawait github.list_isues(repo='a')", 2, "list_isues github.list_issues"),
    ),
]

REFUSED = [
    *UNKNOWN_NAMESPACES,
    *UNKNOWN_FUNCTIONS,
    *MISSING_ARGUMENTS,
    *UNKNOWN_ARGUMENTS,
    *WRONG_LITERALS,
    *ILL_TYPED_ARGUMENTS,
    *POSITIONAL_ARGUMENTS,
    *RESULT_ATTRIBUTES,
    *MISSING_AWAITS,
    *NOT_JSON,
    *NOT_CALLED,
    *FORBIDDEN_CALLS,
    *UNAVAILABLE,
    *NOT_FUNCTIONS,
    *REACHED,
    *FOLLOWED,
    *PLACES,
    *RENAMED,
]

# What only may be wrong: results hold more than they declare, and types that are inferred may be beliefs.
WARNED = [
    *_wrong(
        "unknown_field",
        ("r = await github.list_issues(repo='a')\nr['itms']", 2, "itms items"),
        ("r = await github.list_issues(repo='a')\nr['items'][0]['nme']", 2, "nme number title body"),
        ("r = await github.list_issues(repo='a')\nf\"{r['totl']}\"", 2, "totl total"),
        ("r = await weather.forecast(city='x')\n[day['max'] for day in r['days']]", 2, "max date high alert"),
        ("r = await weather.forecast(city='x')\nr['town']", 2, "town city days"),
        ("r = await github.get_issue(number=1)\nr.title", 2, 'title ["title"]'),
    ),
    *_wrong(
        "invalid_arguments",
        ("r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'])", 2, "text list str"),
        ("r = await github.get_issue(number=1)\nawait echo.say(text=r)", 2, "text dict str"),
        ("try:\n    await echo.say()\nexcept ToolError as e:\n    print(e)", 2, "text"),
        ("try:\n    await echo.say(text=['a'])\nexcept Exception:\n    pass", 2, "text list"),
        ("import contextlib\nwith contextlib.suppress(Exception):\n    await echo.say(text=['a'])", 3, "text"),
        ("import asyncio\nawait asyncio.gather(echo.say(text=['a']), return_exceptions=True)", 2, "text"),
    ),
]  # fmt: skip
