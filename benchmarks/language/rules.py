"""Why a test cannot apply in the sandbox: rules, each with its reason, for what a test says when it does not pass.

A rule names something that the sandbox does not have by design and says so in docs/python.md, and matches the text in
which CPython's tests or the interpreter say that this is what is missing. No rule names a test. What no rule matches
has failed.
"""

import re
from dataclasses import dataclass

from benchmarks.language.file_run import TIME_IS_UP
from benchmarks.language.verdict import Verdict

NEVER = r"(?!)"
ABSENT = "|".join(
    [
        r"bz2",
        r"_bz2",
        r"lzma",
        r"_lzma",
        r"compression\.\w+",
        r"zstd",
        r"_zstd",
        r"ctypes",
        r"_ctypes",
        r"mmap",
        r"ssl",
        r"_ssl",
        r"dbm\.\w+",
        r"_dbm",
        r"_gdbm",
        r"fcntl",
        r"grp",
        r"pwd",
        r"resource",
        r"syslog",
        r"curses",
        r"_curses",
        r"pty",
        r"readline",
        r"termios",
        r"tty",
        r"idlelib",
        r"_?tkinter",
        r"turtle",
        r"turtledemo",
        r"concurrent\.interpreters",
        r"_interp\w+",
        r"msvcrt",
        r"nt",
        r"_?winreg",
        r"winsound",
        r"_winapi",
        r"_posixshmem",
        r"_multiprocessing",
        r"_posixsubprocess",
        r"_remote_debugging",
        r"_scproxy",
        r"_overlapped",
        r"_uuid",
        r"_crypt",
        r"_hashlib",
        r"_socket",
    ]
)
"""Modules that do not import here, as in docs/python.md, and their native parts."""


@dataclass(frozen=True)
class Rule:
    """`skipped` is looked for where a test leaves itself out, `failed` in an exception's kind and text."""

    name: str
    reason: str
    skipped: str = NEVER
    failed: str = NEVER


RULES = (
    Rule(
        "no threads",
        "one thread runs in an instance",
        skipped=r"thread",
        failed=r"RuntimeError: can't start new thread$",
    ),
    Rule(
        "no processes or signals",
        "nothing can be started or signalled from inside",
        skipped=r"process|fork|\bexec|spawn|\bsignal|SIG[A-Z]+|alarm|\bkill|\bpipe",
        failed=r"wasi does not support processes|module 'signal' has no attribute|module '(posix|os)' has no attribute "
        r"'(pipe|fork|kill|exec\w+|wait\w*|spawn\w*|posix_spawn\w*)'",
    ),
    Rule(
        "no sockets",
        "there is no network",
        skipped=r"socket|network|\bssl\b|\btls\b|ipv6|af_unix|bluetooth|vsock|recvmsg|sendmsg|AF_ALG|CAN ISOTP",
        failed=r"'EventLoop' object has no attribute '_(accept|start_serv|check_sig|signal_hand|handle_sig)"
        r"|^PermissionError: \[Errno 2\] Permission denied$|^gaierror: \[Errno -4\]|could not bind on any address"
        r"|module 'socket' has no attribute",
    ),
    Rule(
        "takes long",
        "CPython's own runner leaves it out, too, unless it is asked for",
        skipped=r"resource '?\w+'? is not enabled|Use of the '\w+' resource|bigmem|not enough memory|64-bit|\bslow\b",
    ),
    Rule(
        "CPython's C test modules",
        "they are parts of a build of CPython for its developers",
        skipped=r"_test\w+|testcapi|test modules|ndarray object|_ctypes_test|xxlimited|xxsubtype",
        failed=r"No module named '(_test\w+|xxlimited\w*|xxsubtype)'",
    ),
    Rule(
        "modules that are not here",
        "docs/python.md names them",
        skipped=rf"No module named '?({ABSENT})\b|\b({ABSENT})\b|curses|terminal|\bgui\b|OpenSSL|openssl|\btty",
        failed=rf"^(ModuleNotFoundError|ImportError): No module named '({ABSENT})'"
        r"|unsupported hash type|module 'hashlib' has no attribute '(scrypt|pbkdf2_hmac)'",
    ),
    Rule(
        "another system or build",
        "the test is for Windows, macOS, a free-threaded or a debug build, or leaves WASI out",
        skipped=r"windows|win32|mac ?os|darwin|freebsd|netbsd|android|\bios\b|apple|emscripten|wasi\b|wasm|linux|aix\b"
        r"|solaris|cygwin|debug build|free.?thread|\bGIL\b|pymalloc|\bJIT\b|\bnt\b|NTFS|os\.\w+|OS X|musl|posix"
        r"|platform|TRACE_REFS|gettotalrefcount",
    ),
    Rule(
        "no links, owners or permissions",
        "files of a workspace have none (docs/files.md)",
        skipped=r"link|chmod|chown|\buid\b|root|umask|permission|mknod|mkfifo|xattr|chflags|undecodable|unencodable",
        failed=r"there are no links in the workspace",
    ),
    Rule(
        "no sources of the library",
        "the sandbox carries it compiled",
        failed=r"No such file or directory: '/python/|^OSError: could not get source code$",
    ),
    Rule("time", "the benchmark gives a file so much time, and no more", skipped=re.escape(TIME_IS_UP)),
)
OTHER = Rule(
    "left out by itself", "the test says that it does not apply, for a reason of its own", skipped=""
)
NEWER = Rule(
    "newer library", "it passes with the library that came with the suite, and not with the one in here"
)


def cannot_apply(verdict: Verdict) -> Rule | None:
    """The first rule that says so of a test that was skipped or failed; None if it should have passed."""
    for rule in RULES:
        if verdict.outcome == "failed" and re.search(rule.failed, verdict.reason):
            return rule
        if verdict.outcome == "skipped" and re.search(rule.skipped, verdict.reason, re.IGNORECASE):
            return rule
    return OTHER if verdict.outcome == "skipped" else None
