"""What a server asks of who is not allowed: the header WWW-Authenticate."""

import re
from typing import Final

import httpx2

_PARAMETER: Final = re.compile(r"""([\w-]++)(?:\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"?|([^\s,"]*+)))?|"[^"]*+"?""")


def challenge_of(response: httpx2.Response) -> dict[str, str]:
    """The parameters in WWW-Authenticate, of all challenges. Source: RFC 9110, 11.6.1."""
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(response.headers.get("www-authenticate", "")):
        if value := re.sub(r"\\(.)", r"\1", quoted) or plain:
            found.setdefault(name.lower(), value)
    return found
