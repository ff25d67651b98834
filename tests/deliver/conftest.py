"""The platform that replies go to."""

from collections.abc import Iterator

import pytest

from harness.platforms.notes import Board


@pytest.fixture
def board() -> Iterator[Board]:
    with Board() as board:
        yield board
