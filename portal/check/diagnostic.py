"""What the check tells about one line of a script."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in the model's terms; it `refuses` only where the script cannot have run right."""

    line: int
    message: str
    hint: str
    refuses: bool
    code: str
