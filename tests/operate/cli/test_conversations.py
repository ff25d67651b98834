"""`turntake conversations` shows as many as were asked for, over as many pages as that takes."""

from typing import Any, cast

from turntake.operate.cli.conversations import _found
from turntake.operate.client import Client

PAGES: dict[str, dict[str, Any]] = {
    "": {"conversations": ["a"], "cursor": "1"},
    "1": {"conversations": [], "cursor": "2"},
    "2": {"conversations": ["b", "c"], "cursor": "3"},
    "3": {"conversations": ["d"], "cursor": None},
}


class Pages:
    """A server where few of many match."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def get(self, path: str, *, limit: int, cursor: str = "", **filters: str) -> dict[str, Any]:
        self.limits.append(limit)
        return PAGES[cursor]


def test_pages_with_few_or_none_lead_on() -> None:
    server = Pages()
    assert _found(cast(Client, server), {"limit": 3}) == {"conversations": ["a", "b", "c"], "cursor": "3"}
    assert server.limits == [3, 2, 2]


def test_the_last_page_ends_it() -> None:
    assert _found(cast(Client, Pages()), {"limit": 50}) == {"conversations": ["a", "b", "c", "d"], "cursor": None}
