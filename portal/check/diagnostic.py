"""What the check tells about one line of a script."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in the model's terms; it `refuses` only where the script cannot have run right."""

    line: int
    message: str
    hint: str
    refuses: bool
    code: str


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One finding before it is judged: `node` is wrong for certain (`is_sure`) if the script ever comes to it."""

    node: ast.AST
    line: int
    message: str
    hint: str
    code: str
    is_sure: bool = True
