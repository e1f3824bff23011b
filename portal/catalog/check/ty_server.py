"""ty, the type checker of Python scripts, as a language server."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from anyio.abc import Process
from ty import find_ty_bin

from manifests.json_value import Json
from portal.catalog.check.language_server import LanguageServer
from portal.library.library import write_stubs


class TyServer(LanguageServer):
    """Scripts are cells of a notebook: only there ty allows a top-level `await`, and a script keeps its line numbers.

    All scripts use one notebook, which is faster than one each.
    """

    SUFFIX = ".pyi"
    ENCODING = "utf-32"
    write = staticmethod(write_stubs)
    CAPABILITIES: ClassVar[Json] = {
        "notebookDocument": {"synchronization": {"dynamicRegistration": False}},
    }

    def __init__(self, process: Process, folder: Path) -> None:
        super().__init__(process, folder)
        self._notebook = f"{folder.as_uri()}/script.ipynb"
        cells = self._notebook.replace("file:", "vscode-notebook-cell:", 1)
        self._cells = (f"{cells}#preamble", f"{cells}#script")

    @classmethod
    def command(cls, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
        return [find_ty_bin(), "server"], []

    async def warm_up(self) -> None:
        await self.findings([], "await tools")

    def _show(self, namespaces: Collection[str], script: str) -> str:
        imported = ["import asyncio, portal, tools", "from portal import ToolError"]
        if namespaces:
            imported.append(f"from tools import {', '.join(namespaces)}")
        notebook = {"uri": self._notebook, "version": self.documents}
        texts = dict(zip(self._cells, ("\n".join(imported), script), strict=True))
        if self.documents == 1:
            cells = [{"kind": 2, "document": uri} for uri in texts]
            document = {"languageId": "python", "version": 1}
            opened = {
                "notebookDocument": {**notebook, "notebookType": "jupyter-notebook", "cells": cells},
                "cellTextDocuments": [{**document, "uri": uri, "text": text} for uri, text in texts.items()],
            }
            self._notify("notebookDocument/didOpen", opened)
        else:
            contents = [
                {"document": {"uri": uri, "version": self.documents}, "changes": [{"text": text}]}
                for uri, text in texts.items()
            ]
            change = {"cells": {"textContent": contents}}
            self._notify("notebookDocument/didChange", {"notebookDocument": notebook, "change": change})
        return self._cells[1]
