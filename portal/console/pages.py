"""Renders the pages of the console with Jinja2, which escapes every value, and reads the forms on them.

Rule 1: no text of an upstream, a script or a person is marked as safe; only plots and highlighted code are, and they
escape what they contain.
Rule 2: no page has a style or a script of its own, so that the Content-Security-Policy needs no exception.
"""

import time
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import JsonLexer, PythonLexer, get_lexer_by_name
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.base.errors import RunsError
from portal.base.plain_text import escaped
from portal.base.times import age, iso
from portal.base.tokens import BYTES_OF_TOKEN
from portal.console.source import Source
from portal.console.visitor import Visitor
from portal.runs.decisions import asking_runs
from portal.runs.run_page import state_words, title_of
from portal.runs.shown_calls import indented

FOLDER: Final = Path(__file__).parent

MAX_FORM_BYTES: Final = 1 << 20
MAX_FORM_FIELDS: Final = 1_000
"""More are not parsed: half a million of them, which a stranger can send, take a second."""

_MAX_CHARACTERS: Final = 20_000
"""Of one text on a page."""

_MAX_LINES: Final = 1_000
"""Likewise: a line of a script has more tags than characters."""

STATUSES: Final = {
    **dict.fromkeys(("unknown_run", "unknown_call"), 404),
    **dict.fromkeys(("run_ended", "already_decided"), 409),
    **dict.fromkeys(("token_required", "not_an_approver", "four_eyes"), 403),
    **dict.fromkeys(("invalid_arguments", "invalid_decision"), 422),
}
"""The HTTP status of a refusal, by its code; 400 for others."""

_LEXERS: Final = {
    "json": JsonLexer,
    PYTHON: partial(PythonLexer, stripnl=False),
    JAVASCRIPT: partial(get_lexer_by_name, "typescript", stripnl=False),
}


def source_of(request: Request) -> Source:
    """The portal whose page was asked for."""
    source: Source = request.state.source
    return source


def visitor_of(request: Request) -> Visitor:
    """Who asked for the page."""
    visitor: Visitor = request.state.visitor
    return visitor


async def page(
    request: Request, template: str, here: str = "", *, part: str = "", status: int = 200, **values: Any
) -> Response:
    """A page; or only the block `part` of it, with which a page in a browser replaces its own. `here` names its place
    in the navigation.

    Raises StoreError: the store cannot be read.
    """
    source, visitor = source_of(request), visitor_of(request)
    asking = 0
    with suppress(RunsError):  # this portal keeps no runs
        look = partial(asking_runs, decider=visitor.decider, approvers=source.approvers)
        asking = len(await source.read(look, visitor.owner))
    values |= {"base": source.base, "source": source, "visitor": visitor, "here": here, "asking": asking}
    found = _templates().get_template(template)
    if not part:
        return HTMLResponse(found.render(values), status)
    context = found.new_context({**values, "part": part})
    return HTMLResponse("".join(found.blocks[part](context)), status)


def bare_page(template: str, status: int = 200, **values: Any) -> Response:
    """A page that belongs to no portal."""
    return HTMLResponse(_templates().get_template(template).render(values), status)


async def form_of(request: Request) -> "ImmutableMultiDict[str, str]":
    """The fields of a form. Raises HTTPException: it is too large, or not a form."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise HTTPException(415, "send a form")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"a form has at most {MAX_FORM_BYTES:,} bytes")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise HTTPException(400, f"a form is UTF-8, and has at most {MAX_FORM_FIELDS:,} fields") from None
    return ImmutableMultiDict(fields)


def asked_part(request: Request, *parts: str) -> str:
    """The part of a page that htmx asks for, by `?part=NAME`, if it is one of these; else ""."""
    name = request.query_params.get("part", "")
    return name if name in parts and "hx-request" in request.headers else ""


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(FOLDER / "templates")
    templates = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    templates.filters.update(plain=escaped, num=num, span=span, tokens=tokens, headline=title_of)
    own = (when, clock, highlighted, state_words)
    templates.globals.update({each.__name__: each for each in own}, version=version("mcp-code-portal"))
    templates.globals["bytes_of_token"] = BYTES_OF_TOKEN
    return templates


def when(at: float) -> Markup:
    """How long ago something was; the time itself on hover."""
    ago = "now" if time.time() - at < 5 else f"{age(at)} ago"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(iso(at), ago)


def clock(at: float) -> str:
    """A time of the day, in UTC."""
    return iso(at)[11:19]


def span(seconds: float, *, is_exact: bool = True) -> str:
    """A duration: `40 ms`, `1.5 s`, `3 min 5 s`, `14 h 2 min`, `3 d 2 h`; not exact: with one unit only."""
    for size, unit, part, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // part if is_exact else 0
            return f"{seconds // size:.0f} {unit}" + (f" {rest:.0f} {name}" if rest else "")
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0"
    return f"{round(seconds, 1 if is_exact and seconds < 10 else 0):g} s"


def num(count: float) -> str:
    """A number with at most three digits where more would not be read: `12`, `9,871`, `34k`, `1.2M`."""
    if count >= 1e6:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e3:.0f}k" if count >= 1e4 else f"{count:,.0f}"


def tokens(size: int) -> str:
    """How many tokens so many bytes are."""
    return num(size / BYTES_OF_TOKEN)


def pretty(value: Json) -> Markup:
    """The beginning of a value as indented JSON."""
    return highlighted(cut(indented(value, _MAX_CHARACTERS)), "json")


def cut(text: str) -> str:
    """The beginning of a text. A cut is marked."""
    shown = "\n".join(text[:_MAX_CHARACTERS].split("\n")[:_MAX_LINES])
    return text if shown == text else f"{shown}\n… cut after {len(shown):,} characters"


def highlighted(text: str, language: Literal["json"] | KernelName) -> Markup:
    """Code with its words marked by classes. Pygments escapes the text."""
    marked: str = highlight(escaped(text, "\n\t"), _LEXERS[language](), HtmlFormatter(nowrap=True))
    return Markup(marked)
