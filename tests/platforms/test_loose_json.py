"""JSON that others wrote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.errors import Unreadable
from turntake.platforms.loose_json import (
    at,
    integer_at,
    named_facts,
    named_texts,
    number_at,
    object_at,
    object_in,
    objects_at,
    present,
    read_object,
    text_at,
    texts_at,
    time_at,
    time_in,
)

NOW = 1_790_000_000_000
PAYLOAD: dict[str, Any] = {
    "a": {"b": ["x", {"c": 7}, 8, None]},
    "n": 5,
    "half": 0.5,
    "t": True,
    "huge": 2**70,
    "empty": "",
}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'{"a":NaN}', b"\xff", b'{"a":' * 100_000, b"null", b'{"a":"\x00"}'],
    ids=["empty", "list", "number", "cut", "NaN", "no UTF-8", "deep", "null", "control character"],
)
def test_a_body_that_is_not_an_object_is_none(body: bytes) -> None:
    assert object_in(body) is None


def test_a_lone_surrogate_is_replaced_and_the_rest_is_kept() -> None:
    assert object_in(rb'{"a": "x\ud83d", "b": "\ud83d\ude00", "c": "\\ud83d"}') == {
        "a": "x\ufffd",
        "b": "\U0001f600",
        "c": r"\ud83d",
    }


def test_a_body_that_is_not_an_object_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="which is what Slack sends"):
        read_object(b"[]", "Slack")


def test_paths_that_lead_nowhere_find_nothing() -> None:
    assert at(PAYLOAD, "a", "b") == ["x", {"c": 7}, 8, None]
    assert at(PAYLOAD, "a", "z", "b") is None
    assert at(PAYLOAD, "n", "b") is None
    assert objects_at(PAYLOAD, "a", "b") == [{"c": 7}]
    assert objects_at(PAYLOAD, "a") == []
    assert object_at(PAYLOAD, "a", "b") == {}


def test_a_value_of_another_type_is_not_there() -> None:
    """An id may be a text or a number, and nothing else. Of numbers, none counts that a store could not keep."""
    names = ("n", "half", "t", "huge", "a", "empty")
    assert [text_at(PAYLOAD, name) for name in names] == ["5", "", "", str(2**70), "", ""]
    assert [integer_at(PAYLOAD, name) for name in names] == [5, None, None, None, None, None]
    assert [number_at(PAYLOAD, name) for name in names] == [5, 0.5, None, None, None, None]
    assert texts_at(PAYLOAD, "a", "b") == ["x", "8"]
    assert text_at(object_in(b'{"id": ' + b"9" * 5_000 + b"}"), "id") == ""
    assert texts_at(PAYLOAD, "n") == []


def test_only_what_is_there_is_passed_on() -> None:
    assert named_texts(PAYLOAD, ("n", "half", "empty", "z")) == {"n": "5"}
    assert named_facts(PAYLOAD, {"n": "number", "empty": "nothing", "half": "half", "t": "true"}) == {
        "number": 5,
        "nothing": "",
    }
    assert present(zero=0, no=False, text="", missing=None, many=[], one="x") == {"zero": 0, "one": "x"}


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        (1_790_000_000, NOW),
        ("1790000000", NOW),
        (" 1790000000 ", NOW),
        (1_790_000_000.25, NOW + 250),
        ("1790000000.25", NOW + 250),
        (NOW, NOW),
        (str(NOW), NOW),
        (float(NOW), NOW),
        (999_999_999_999, None),  # the last second that could be meant, in the year 33,658
        (10**12, 10**12),
        ("1000000000000", 10**12),
        ("2026-09-21T14:13:20+0000", NOW),
        ("2026-09-21T16:13:20.250+02:00", NOW + 250),
        ("2026-09-21T14:13:20Z", NOW),
        ("2026-09-21T14:13:20", NOW),
        ("1999-12-31T00:00:00Z", 946_598_400_000),
        (20, 20_000),
        ("1771442483.260129", 1_771_442_483_260),  # Slack's, digit by digit: a float would be off at times
        ("1771442483.001", 1_771_442_483_001),
    ],
)
def test_a_time_is_read_however_it_is_written(value: object, at_ms: int | None) -> None:
    assert time_in(value) == at_ms


NO_TIME: tuple[object, ...] = (
    *(None, True, [], {}, -1, 0, 1e308, -1e308, 10**30, 10**400),
    *("", "soon", "-1", "٣", "²", "1e9", "9" * 20, "2026-02-30T25:61:61Z"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
)


@pytest.mark.parametrize("garbage", NO_TIME, ids=range(len(NO_TIME)))
def test_anything_else_is_not_a_time(garbage: object) -> None:
    assert time_in(garbage) is None


def test_a_time_is_found_at_a_path() -> None:
    assert time_at({"post": {"ts": "1790000000.25"}}, "post", "ts") == NOW + 250
    assert time_at({"post": 3}, "post", "ts") is None


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_value_makes_a_reader_raise(body: bytes | str) -> None:
    payload = object_in(body)
    assert payload is None or isinstance(payload, dict)
