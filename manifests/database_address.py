"""Addresses of databases: which of their parts say no more than where and whose, so that scripts may see them.

All that is not clearly such a part may sign in: drivers take tokens in a path and in parameters of any name, and
passwords as they are, with any of `/?#@` in them.
"""

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import unquote

REFERENCE: Final = "\0"
"""Stands for another reference in what is before and after one."""

_NAME: Final = re.compile(
    r"(?:HOST|SERVER|SOURCE|ADDR|ADDRESS|ENDPOINT|PORT|USER(?:_?ID)?|NAME|DATABASE|CATALOG|SCHEMA|KEYSPACE"
    r"|DATASET|TABLE|COLLECTION|INDEX|REPLICA_?SET|TENANT|PROJECT(?:_?ID)?|TIME_?ZONE|ROLE|WAREHOUSE|ACCOUNT"
    r"|APPLICATION|DRIVER|SERVICE|REGION|MODE|PATH|FILE|FOLDER|DIR|CERT)$|(?:^|_)(?:UID|DB|LOC)$",
    re.IGNORECASE,
)
"""Of a parameter or a variable that holds such a part."""
_PARAMETER: Final = re.compile(
    r"(?P<name>[A-Za-z][\w.-]{0,99}(?: [A-Za-z]\w{0,99})?)\s{0,9}=\s{0,9}[\"'{]?(?:tcp:)?[\w.,/\\\0-]*\Z",
    re.IGNORECASE,
)
"""`Data Source=`, `?host=`, and a value that has begun."""
_FAR: Final = 300
"""Characters before a reference in which its parameter begins."""

_HOST: Final = r"(?:[\w.\0-]*|\[[\da-f:.\0]*\])(?::[\d\0]{1,5})?"
_HOSTS: Final = rf"(?:[^/?#\s]*@)?(?:{_HOST},)*"
_IN_HOST: Final = re.compile(
    rf"(?:://{_HOSTS}\[?|\A(?!.*://)[^=?]*@(?:tcp\(|unix\(|//)?)(?:[\w.\0-]*[\w.-])?\Z"
    r"|(?:\A|:)(?:sqlite|duckdb|file):\Z",
    re.IGNORECASE | re.DOTALL,
)
"""In a URL before the path, in `user:password@tcp(host)` and `jdbc:oracle:thin:@host`, or behind `sqlite:`."""
_IN_USER: Final = re.compile(r"://[\w.-]*\Z")
_IN_PATH: Final = re.compile(
    r"(?:postgres|mysql|mariadb|mongodb|redis|mssql|sqlserver|oracle|clickhouse|snowflake|cockroach|sqlite|duckdb|file"
    r"|bigquery|redshift|trino|presto|databricks)"
    rf"[\w+.]*://{_HOSTS}{_HOST}/[\w./\0-]*\Z",
    re.IGNORECASE,
)
"""Where a database has its name; what is there in other URLs may be a token."""
_PASSWORD_FOLLOWS: Final = re.compile(r"[^/?#@\s:]*:[^/?#@\s]*@")
_LOGIN_FOLLOWS: Final = re.compile(r"[^?\s]*@")

_PLAIN: Final = re.compile(r"(?:tcp:)?[\w.,/\\-]*(?::\d{1,5}(?=[,/\\]|\Z)[\w.,/\\-]*)*")
"""Hosts, with ports, a user, a name, a folder; no address with a login in it, no `password=` and no signature."""
_IN_BRACKETS: Final = re.compile(r"\[(?P<address>[^\]]*)\](?::\d{1,5})?")
_SCHEME: Final = re.compile(r"^[A-Za-z][\w+.-]*://")


def is_part_of_address(variable: str, value: str, before: str, after: str) -> bool:
    """Whether what the variable holds clearly says no more than where a database is, or who comes to it.

    By its place or its name, but in a parameter by that of the parameter alone. `before` and `after` are what stands
    around it, with REFERENCE for others.
    """
    if parameter := _PARAMETER.search(unquote(before[-_FAR:])):
        name = re.sub(r"\W", "_", parameter["name"])
        return bool(_NAME.search(name)) and _is_plain(_SCHEME.sub("", value))
    return _is_plain(value) and (bool(_NAME.search(variable)) or _is_place(before, after))


def _is_place(before: str, after: str) -> bool:
    if _IN_USER.search(before) and _PASSWORD_FOLLOWS.match(after):
        return True
    return not _LOGIN_FOLLOWS.match(after) and bool(_IN_HOST.search(before) or _IN_PATH.search(before))


def _is_plain(value: str) -> bool:
    return bool(_PLAIN.fullmatch(value)) or _is_ipv6(value)


def _is_ipv6(value: str) -> bool:
    if "%" in value:  # behind which any text may stand
        return False
    literal = _IN_BRACKETS.fullmatch(value)
    try:
        IPv6Address(literal["address"] if literal else value)
    except ValueError:
        return False
    return True
