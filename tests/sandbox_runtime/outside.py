"""What code gives in an ordinary Python, to hold the sandbox against."""

import json
import subprocess
import sys
from pathlib import Path

from manifests.json_value import Json


def printed_outside(code: str, text: str = "", folder: Path | None = None) -> dict[str, Json]:
    """The object that code prints as JSON, with `text` as its stdin."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    printed: dict[str, Json] = json.loads(done.stdout)
    return printed
