"""JSON that others wrote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.platforms.loose_json import at, object_at, object_in, objects_at, text_at


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'{"a":NaN}', b"\xff", b'{"a":' * 100_000, b"null", b'{"a":"\x00"}'],
    ids=["empty", "list", "number", "cut", "NaN", "no UTF-8", "deep", "null", "control character"],
)
def test_what_is_no_object_is_nothing(body: bytes) -> None:
    assert object_in(body) is None


def test_half_a_character_is_replaced_and_costs_nothing_else() -> None:
    assert object_in(rb'{"a": "x\ud83d", "b": "\ud83d\ude00", "c": "\\ud83d"}') == {
        "a": "x\ufffd",
        "b": "\U0001f600",
        "c": r"\ud83d",
    }


def test_paths_that_lead_nowhere_find_nothing() -> None:
    found: dict[str, Any] = {"a": {"b": ["x", {"c": 7}]}, "n": 5, "t": True}
    assert at(found, "a", "b") == ["x", {"c": 7}]
    assert at(found, "a", "z", "b") is None
    assert at(found, "n", "b") is None
    assert objects_at(found, "a", "b") == [{"c": 7}]
    assert objects_at(found, "a") == []
    assert object_at(found, "a", "b") == {}
    assert (text_at(found, "n"), text_at(found, "t"), text_at(found, "a")) == ("5", "", "")


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_nothing_ever_raises(body: bytes | str) -> None:
    found = object_in(body)
    assert found is None or isinstance(found, dict)
