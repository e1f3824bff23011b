"""Scripts that run right, most of them odd, and none of which a check may refuse.

A type checker dislikes many of them. Each is run with and without the check (`test_corpus.py`), so that it is known
to run right, and to give the same with it.
"""

from collections.abc import Iterator
from pathlib import Path

_FOLDER = Path(__file__).parent / "right_scripts"


def right_scripts() -> Iterator[tuple[str, str]]:
    """Names and texts; in the files a line `%%` stands between two scripts.

    plain: nothing is odd. dynamic_arguments: only the running script knows them. replaced: something else stands in the
    place of the library, or of what it is made with. guarded: the script asks first, or handles what goes wrong.
    unreached: what is wrong never runs. results: plain data, more than it declares, and changed. odd: Python that a
    type checker or a careless reader takes for something else. repaired: arguments that are sent as they were meant.
    uncertain: what is wrong seems to run, and does not. attacks: what somebody tried in order to have a right script
    refused, knowing how the check decides.
    """
    for file in sorted(_FOLDER.glob("*.txt")):
        for number, text in enumerate(file.read_text("utf-8").removesuffix("\n").split("\n%%\n"), 1):
            yield f"{file.stem} {number}", text
