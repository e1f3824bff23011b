"""Finds the line of a server's stderr that explains why it ended."""

import re
from collections.abc import Sequence
from typing import Final

_MAX_CHARACTERS: Final = 300
_FRAME: Final = " \t|+-─━═│┃║├╭╮╰╯┌┐└┘▶×✖•"
"""Decoration around text: the tree of an exception group, boxes, and uv's arrows."""

_ERROR: Final = re.compile(
    r"(?:\[cause\]|Caused by|cause): \S"
    r"|(?:[\w$./-]+: |Uncaught |Unhandled \w+ |Fatal |Exception in thread \S+ |\(in promise\) )*"
    r"(?:[\w.$]+\.)?\w*(?:Error|Exception)\b(?! ignored)"
    r"|(?:[\w.-]+: )?(?:fatal )?error: |docker: |panic: |fatal: |thread '.*' panicked|npm (?:error|ERR!) "
    r"|(?:.{0,60}\W)?(?:ERROR|CRITICAL|FATAL)\b|.{0,60}\blevel\W{1,4}(?:error|fatal)\b"
)
"""How Python, Node, Java, Go, Rust, uv, npm, docker and loggers begin a line that reports an error."""

_NOISE: Final = re.compile(
    r"at |\.\.\. \d+ |File \"|.*Traceback \(most|.*\bsub-exceptions?\)|During handling|The above exception|.*ignored in"
    r"|(?:[\w.]+\.)?CancelledError|Node\.js v|throw |(?:code|errno|syscall|hostname|address|port|path|requireStack): "
    r"|npm (?:warn|notice|WARN)|npm (?:error|ERR!) (?:code|errno|syscall|path|dest|type|cwd|A complete log)\b"
    r"|(?:Run|See|Try|For more) .*help|(?:Installed|Resolved|Prepared|Audited|Downloading|Downloaded|Building|Built) "
    r"|(?:warning|note|hint|help): |\(node:\d+\)|\(Use `node|goroutine \d|exit status|.*\b(?:INFO|DEBUG|info|debug)\b"
    # What the Python SDK 1.x writes about the portal's own probe.
    r"|.*server/discover|.*validation errors? for (?:Client|JSONRPC)|\w+(?:Request|Notification)\.\S+$|For further info"
)
_IS_CONTINUED: Final = re.compile(r".*[:[{(]$|.*\bvalidation errors? for \w+$|Error$")
_CONTINUATION_LINES: Final = 8


def crash_reason(lines: Sequence[str]) -> str:
    """The line with the innermost cause, else the last meaningful one; "" if every line is noise."""
    plain = [line.strip(_FRAME) if any(map(str.isalpha, line)) else "" for line in lines]
    told = [n for n, line in enumerate(plain) if line and not _NOISE.match(line)]
    errors = [n for n in told if _ERROR.match(plain[n]) or "─▶" in lines[n]]
    banner = [n for n in told if not lines[n].strip().endswith(("│", "┃", "║", "|"))]
    if not errors:
        return plain[banner[-1]][:_MAX_CHARACTERS] if banner else ""
    first = errors[-1]
    if plain[first].startswith("npm "):  # npm puts the most specific line first
        first = next(n for n in errors if plain[n].startswith("npm "))
    reason = re.sub(r"^(?:\[cause\]|Caused by|cause): ", "", plain[first])
    if "─▶" in lines[first] or _IS_CONTINUED.match(reason):
        rest = [line for line in plain[first + 1 :] if line and not _NOISE.match(line)]
        reason = " ".join([reason, *rest[:_CONTINUATION_LINES]])
    return reason[:_MAX_CHARACTERS]
