from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.console.desk import Desk, desk_in


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_in(tmp_path) as desk:
        yield desk
