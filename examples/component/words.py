"""A tool as a WebAssembly component. It sees the folders that the manifest has `act` grant, and nothing else."""

from pathlib import Path

from act_sdk import component, tool


@component
class Words:
    @tool(description="Count the words of a text file; the path is absolute", read_only=True)
    async def count(self, path: str) -> int:
        return len(Path(path).read_text().split())
