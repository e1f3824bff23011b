"""The commands and their options. It imports little, so that `--help` and a mistyped command answer at once."""

import argparse
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, get_args

from manifests.kernels import KernelName

if TYPE_CHECKING:  # importing it takes longer than all of this
    from portal.records.audit.chain import Head

_INVALID_CHOICE: Final = re.compile(
    # Since Python 3.14 argparse makes a suggestion of its own in between.
    r"invalid choice: '(.*)'(?:, maybe you meant .*)? \(choose from (.*)\)",
    re.DOTALL,
)

_Commands: TypeAlias = "argparse._SubParsersAction[Any]"

STATUSES: Final = (
    "A command exits with 0 if it succeeded, 1 if it failed, 2 for wrong usage or an invalid manifest, 130 after "
    "Ctrl-C, 143 after SIGTERM (serve: 0)."
)
_ENDINGS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("--http 127.0.0.1:8080", ""),
    "status": ("", "1 if anything needs a person, or a portal does not answer."),
    "reload": ("", "1 if a running portal does not take the change within 15 s, 2 if it was not accepted."),
    "run": ("report.py", "1 if the script failed or was refused, 2 if its file cannot be read."),
    "runs": ("", ""),
    "runs list": ("--all", ""),
    "runs show": ("3f2a", ""),
    "runs watch": ("3f2a", "1 if no portal has written a run yet."),
    "runs wait": ("3f2a --timeout 60", "1 if the run did not end well, 4 if it has not ended in time."),
    "runs approve": ("3f2a 2", "2 if the approval is not confirmed."),
    "runs deny": ('3f2a 2 --reason "not on a Friday"', ""),
    "runs cancel": ("3f2a", ""),
    "runs replay": ("3f2a", "1 if the script does something else than its journal says."),
    "runs fork": ("3f2a --at 2", "2 if it is not confirmed, or FILE cannot be read."),
    "ui": ("--no-browser", "2 if there is no such run."),
    "search": ('"show commits"', "1 if there is no such upstream, 2 if --limit is not from 1 to 50."),
    "stubs": ("--out stubs", "1 if an upstream is down, or there is no such namespace."),
    "check": (
        "--strict",
        "1 for errors, 2 for an invalid manifest or no such upstream, 3 for warnings with --strict.",
    ),
    "explain": (
        "git.git_reset",
        "0 if it may be called, 1 if it is refused, 2 if there is no such tool, or for --arguments of portal.fetch.",
    ),
    "login": ("tickets", "1 if the sign-in failed, 2 if the upstream has no OAuth with a person."),
    "logout": ("tickets", "1 if the tokens are deleted, but could not be revoked."),
    "lock": ("--diff", "1 for differences (--diff) or a down upstream, 2 if PATTERN matches nothing."),
    "audit verify": ("audit.jsonl", "1 if the log was changed, 2 if it cannot be read."),
    "audit head": ("audit.jsonl", "1 if the log was changed, 2 if it cannot be read."),
    "audit export": ("", "2 if the log is not in a database."),
    "bake": ("humanize", ""),
    "import": ("--dry-run", "1 if a file cannot be used or none has servers, 2 if portal.yaml exists."),
    "schema": ("", ""),
    "completion": ("bash", ""),
}
"""The arguments of an example, and the exit statuses with a meaning of their own."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command: `runs` names the module and function of `portal.cli` to run.

    Prints the help without arguments. Raises SystemExit: there is nothing to run.
    """
    return argument_parser().parse_args(arguments or ["--help"])


def completion_script(shell: str) -> str:
    import shtab

    parser = argument_parser()
    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        for each in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _actions(each)


def argument_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mcp-code-portal",
        description="Two MCP tools in front of any number of MCP servers: docs_search and execute_code.",
        epilog=f"Every command takes --config FILE; `mcp-code-portal COMMAND --help` shows more. {STATUSES}",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('mcp-code-portal')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    everyday = (_serve, _status, _reload, _run, _runs, _ui, _search, _stubs, _check, _explain)
    for add in (*everyday, _login, _logout, _lock, _audit, _bake, _import, _schema, _completion):
        add(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Escape the message: it may contain file names that other people chose."""
        from portal.base.plain_text import marked_lines

        if found := _INVALID_CHOICE.search(message):
            choices = re.findall(r"[\w-]+", found[2])
            near = difflib.get_close_matches(found[1], choices, n=1)
            known = f"did you mean {near[0]}?" if near else f"known: {', '.join(choices)}"
            message = f"{message[: found.start()]}there is no {found[1]!r}; {known}"
        super().error(marked_lines(message))


def _serve(commands: _Commands) -> None:
    command = _command(commands, "serve", "serve MCP over stdio, or over HTTP with --http", log_level="info")
    command.add_argument("--http", metavar="HOST:PORT", type=_address, help="listen on this address, at /mcp")
    command.add_argument(
        "--accept", dest="takes_all", action="store_true", help="take a change that waits for `reload`"
    )
    _profile_option(command, "the profile of callers whose token has none")


def _status(commands: _Commands) -> None:
    text = "show what your running portals do, and what needs you"
    _json_option(_command(commands, "status", text, needs_manifest=False))


def _reload(commands: _Commands) -> None:
    text = "show what changed in the manifest and its files, and let it take effect in running portals"
    command = _command(commands, "reload", text, needs_manifest=False)
    command.add_argument("--yes", action="store_true", help="accept it without a question")


def _run(commands: _Commands) -> None:
    command = _command(commands, "run", "run a script file as execute_code would")
    command.add_argument("script", type=Path, help="the file, or - for standard input")
    kernels = get_args(KernelName)
    command.add_argument(
        "--kernel", choices=kernels, help="its language, by default that of its name, or python"
    )
    command.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="less than limits.wall_seconds")
    _json_option(command)
    _profile_option(command, "run the script as a caller with this profile")


def _runs(commands: _Commands) -> None:
    command = _command(
        commands, "runs", "list runs, watch them, and decide what they ask", runs="runs:list_runs"
    )
    command.set_defaults(all=False, limit=50)
    _json_option(command)
    actions = command.add_subparsers(title="actions, with list as the default", metavar="ACTION")

    def action(name: str, text: str, function: str = "", *, seq: str = "") -> argparse.ArgumentParser:
        parser = _command(actions, name, text, runs=f"runs:{function or name}", default=argparse.SUPPRESS)
        _json_option(parser, default=argparse.SUPPRESS)
        nargs = "?" if name == "watch" else None
        if name != "list":
            parser.add_argument("run", metavar="RUN", nargs=nargs, help="its id, or a unique beginning of it")
        if seq:
            parser.add_argument("seq", metavar="SEQ", type=int, nargs="?", help=seq)
        return parser

    listing = action("list", "list open runs", "list_runs")
    listing.add_argument("--all", action="store_true", help="also ended ones that have a journal")
    listing.add_argument("--limit", type=_count, default=50, metavar="N", help="the newest, default 50")
    action("show", "show a run: its script, its calls, what it waits for, its answer")
    action("watch", "print what happens to a run, or to all runs")
    waiting = action("wait", "wait until a run has ended, and print its answer")
    waiting.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="exit with 4 after this time")
    approve = action("approve", "approve a call that waits for a person", "decide", seq="which call")
    approve.add_argument("--arguments", type=_json_object, metavar="JSON", help="call it with these instead")
    approve.add_argument("--yes", action="store_true", help="do not ask; the audit log says so")
    approve.set_defaults(is_approved=True, reason="")
    deny = action("deny", "deny a call that waits for a person", "decide", seq="which call")
    deny.add_argument("--reason", metavar="TEXT", default="", help="the reason that the script gets")
    deny.set_defaults(is_approved=False, arguments=None, yes=False)
    action("cancel", "end a run")
    replay = action("replay", "repeat a run from its journal step by step, without making a call")
    replay.add_argument("--at", type=int, metavar="SEQ", help="only until this call")
    fork = action("fork", "start a run that repeats another one up to a call, and continues live")
    fork.add_argument("--at", type=int, metavar="SEQ", required=True, help="the first call to make again")
    fork.add_argument("--script", type=Path, metavar="FILE", help="continue with this script")
    fork.add_argument("--yes", action="store_true", help="do not ask")


def _ui(commands: _Commands) -> None:
    command = _command(
        commands, "ui", "print and open the address of the console, where people see and decide"
    )
    command.add_argument("run", metavar="RUN", nargs="?", default="", help="open the page of this run")
    command.add_argument("--port", type=_port, metavar="N", help="default: 7700, or the next that is free")
    command.add_argument("--no-browser", dest="browser", action="store_false", help="only print the address")
    text = "whoever opens the address may decide, also if it is not printed on a terminal"
    command.add_argument("--decide", action="store_true", help=text)


def _search(commands: _Commands) -> None:
    command = _command(commands, "search", "find functions as docs_search would", runs="library:search")
    command.add_argument("query", nargs="?", default="", help="a few words; empty lists the namespaces")
    command.add_argument("--full", action="store_true", help="show types and documentation too")
    command.add_argument("--upstream", metavar="NAME", help="search only this upstream")
    command.add_argument("--limit", type=int, default=5, metavar="N", help="1 to 50 functions, default 5")
    command.add_argument("--live", action="store_true", help="ask the upstreams, not the lockfile")
    _json_option(command)
    _profile_option(command)


def _stubs(commands: _Commands) -> None:
    text = "print or write the typed stubs of all functions"
    command = _command(commands, "stubs", text, runs="library:stubs")
    command.add_argument("namespace", nargs="?", help="print only this namespace or upstream")
    command.add_argument("--out", type=Path, metavar="DIR", help="write all as an importable package to DIR")
    _profile_option(command)


def _check(commands: _Commands) -> None:
    command = _command(commands, "check", "check the manifest, the upstreams and the sandbox")
    command.add_argument("upstream", nargs="?", metavar="UPSTREAM", help="check only this one, tool by tool")
    command.add_argument("--strict", action="store_true", help="exit with 3 if there are warnings")
    text = "check a change that waits, which starts its upstreams and commands"
    command.add_argument("--waiting", dest="takes_all", action="store_true", help=text)
    _json_option(command)
    _profile_option(command)


def _explain(commands: _Commands) -> None:
    command = _command(commands, "explain", "show whether a tool may be called, and which rule decides")
    command.add_argument("name", help="a tool or function: name, upstream.tool or namespace.function")
    text = "arguments to test against conditions"
    command.add_argument("--arguments", type=_json_object, metavar="JSON", help=text)
    command.add_argument("--live", action="store_true", help="ask the upstreams, not the lockfile")
    _json_option(command)
    _profile_option(command)


def _login(commands: _Commands) -> None:
    command = _command(commands, "login", "sign in to an upstream that requires OAuth")
    command.add_argument("upstream", metavar="NAME", help="its key in the manifest")
    command.add_argument("--no-browser", dest="browser", action="store_false", help="only print the URL")
    command.set_defaults(is_out=False)


def _logout(commands: _Commands) -> None:
    text = "sign out of an upstream: revoke and delete its tokens"
    command = _command(commands, "logout", text, runs="login:command")
    command.add_argument("upstream", metavar="NAME", help="its key in the manifest")
    command.add_argument(
        "--person", metavar="SUBJECT", help="sign this person out, as named by the identity provider"
    )
    command.add_argument("--tenant", metavar="NAME", help="in this tenant")
    command.set_defaults(is_out=True)


def _lock(commands: _Commands) -> None:
    command = _command(commands, "lock", "accept the current tool definitions in portal.lock")
    command.add_argument("--diff", action="store_true", help="only show differences; exit with 1 if any")
    command.add_argument(
        "--accept",
        action="append",
        metavar="PATTERN",
        help="accept only matching differences (files.read_file, files.*, files for its instructions); append @HASH to "
        "require the version shown by --diff; repeatable",
    )
    command.add_argument("--verbose", action="store_true", help="show whole definitions, with their hashes")
    _json_option(command)


def _audit(commands: _Commands) -> None:
    command = _command(commands, "audit", "verify or export an audit log")
    actions = command.add_subparsers(metavar="ACTION", dest="action", required=True)
    for name, text in (("verify", "verify every line"), ("head", "print number and hash of the last line")):
        action = _command(actions, name, text, runs="offline:audit", needs_manifest=False)
        action.add_argument("file", type=Path, nargs="+", help="the log's files, oldest first")
        action.add_argument("--head", type=_head, metavar="N:HASH", help="fail unless this line is present")
        action.add_argument("--after", type=_head, metavar="N:HASH", help="the predecessor of the first line")
        action.add_argument("--mixed", action="store_true", help="ignore non-audit lines, as in a stderr")
    export = _command(actions, "export", "print the log in the database of runs", runs="offline:export")
    export.add_argument("--after", type=_head, metavar="N:HASH", help="only the lines after this one")


def _bake(commands: _Commands) -> None:
    text = "build a sandbox that contains more Python packages"
    command = _command(commands, "bake", text, runs="offline:bake", needs_manifest=False)
    command.add_argument("package", nargs="+", help="a name, optionally with versions, or a path to a wheel")
    command.add_argument(
        "--out", type=Path, default=Path("sandbox.wasm"), metavar="FILE", help="default: sandbox.wasm"
    )


def _import(commands: _Commands) -> None:
    text = "import the servers that other clients are configured with"
    command = _command(commands, "import", text, runs="import_servers:command", needs_manifest=False)
    command.add_argument(
        "client",
        nargs="*",
        help="import only these: claude-desktop, claude-code, cursor, vscode, windsurf, gemini, codex, zed, cline, "
        "roo, opencode, goose, copilot; docs/import.md lists the names of single files, such as cursor-project",
    )
    command.add_argument("--project", type=Path, metavar="DIR", help="also read the files of this project")
    command.add_argument("--add", action="store_true", help="add to an existing portal.yaml")
    command.add_argument("--dry-run", action="store_true", help="only show what was found; write nothing")
    command.add_argument("--save-secrets", action="store_true", help="write secret values to portal.env")
    for name, text in (("install", "put the portal into this client's file"), ("undo", "restore that file")):
        text = f"{text}; repeatable"
        command.add_argument(f"--{name}", action="append", default=[], metavar="CLIENT", help=text)
    _json_option(command)


def _schema(commands: _Commands) -> None:
    text = "print the JSON Schema of portal.yaml, for editors"
    _command(commands, "schema", text, runs="offline:schema", needs_manifest=False)


def _completion(commands: _Commands) -> None:
    text = "print the completion of these commands for a shell"
    command = _command(commands, "completion", text, runs="offline:completion", needs_manifest=False)
    command.add_argument("shell", choices=["bash", "zsh", "fish", "tcsh"], help="the shell")


def _command(
    commands: _Commands,
    name: str,
    text: str,
    *,
    runs: str = "",
    log_level: str = "error",
    needs_manifest: bool = True,
    default: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command. By default, the function `command` of the module with its name runs it.

    With the `default` SUPPRESS, an action of a command keeps options that were written before it.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if (whole := parser.prog.partition(" ")[2]) in _ENDINGS:
        arguments, statuses = _ENDINGS[whole]
        example = f"Example: %(prog)s {arguments}".rstrip()
        parser.epilog = f"{example}\nExits with {statuses}" if statuses else example
    where = "the manifest; default: $MCP_CODE_PORTAL_CONFIG, then ./portal.yaml"
    parser.add_argument("--config", type=Path, metavar="FILE", default=default, help=where)
    level, what = default or log_level, f"what to log on stderr; default: {log_level}"
    levels = ["debug", "info", "warning", "error"]
    parser.add_argument("--log-level", choices=levels, default=level, help=what)
    parser.set_defaults(
        runs=runs or f"{name}:command", needs_manifest=needs_manifest, profile=None, takes_all=False
    )
    return parser


def _profile_option(parser: argparse.ArgumentParser, text: str = "apply this profile") -> None:
    parser.add_argument("--profile", metavar="NAME", help=text)


def _json_option(parser: argparse.ArgumentParser, default: bool | str = False) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="print the answer as JSON")


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"it is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"it must be a JSON object, not a {type(value).__name__}")
    return value


def _address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:8080`, `:8080` or `8080` (both loopback) as host and port."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", _port(port)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _head(text: str) -> "Head":
    from portal.records.audit.chain import Head

    try:
        return Head.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
