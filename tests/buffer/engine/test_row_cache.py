"""The rows that a process remembers: as objects, as bytes, and within a bound."""

import random

import pytest

from turntake.buffer.codec import encode
from turntake.buffer.engine import row_cache
from turntake.buffer.engine.draft import Row
from turntake.buffer.engine.row_cache import ENTRY_BYTES, RowCache
from turntake.rules.conversation import Conversation
from turntake.rules.key import ConversationKey

KEYS = [ConversationKey.of(f"c{number}") for number in range(100)]


def put(rows: RowCache, number: int, agent: str = "") -> Row:
    row = Row((number + 1) << 20, Conversation(number + 1, agent=agent))
    rows.put(KEYS[number], row, encode(row.conversation))
    return row


def test_what_is_no_longer_kept_as_an_object_is_read_from_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 1)
    rows = RowCache()
    written = [put(rows, number) for number in range(100)]
    assert [rows.get(key) for key in KEYS] == written
    rows.drop(KEYS[7])
    assert rows.get(KEYS[7]) is None


def test_a_long_row_is_kept_as_bytes_only() -> None:
    rows = RowCache()
    written = put(rows, 1, "x" * row_cache.LARGEST_OBJECT)
    assert rows.get(KEYS[1]) == written
    assert rows.get(KEYS[1]) is not written


def test_a_row_that_grew_long_is_not_remembered_as_it_was_before() -> None:
    rows = RowCache()
    put(rows, 1)
    written = put(rows, 1, "x" * row_cache.LARGEST_OBJECT)
    assert rows.get(KEYS[1]) == written
    put(rows, 1)
    rows.drop(KEYS[1])
    assert rows.get(KEYS[1]) is None


def test_a_row_of_which_nobody_has_the_bytes_is_not_kept_as_the_bytes_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What others wrote is met without its bytes; those of before are of an older version."""
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 1)
    rows = RowCache()
    before = put(rows, 1)
    rows.put(KEYS[1], Row(before.version + 1, Conversation(9)), b"")
    put(rows, 2)
    assert rows.get(KEYS[1]) in (None, before)


def test_bytes_are_bounded_and_whoever_talks_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty fit: of a hundred, the latest are there, and the one that talked again and again."""
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 0)
    rows = RowCache(20 * (ENTRY_BYTES + 20))
    for number in range(100):
        put(rows, number)
        assert rows.get(KEYS[0])
        put(rows, 0)
    remembered = [number for number, key in enumerate(KEYS) if rows.get(key)]
    assert 18 <= len(remembered) <= 22
    assert remembered[0] == 0
    assert remembered[1:] == list(range(101 - len(remembered), 100))


def test_as_many_as_fit_are_remembered_in_whatever_order_they_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 0)
    rows = RowCache(100 * (ENTRY_BYTES + 30))
    order, chance = list(range(100)), random.Random(1)
    for _ in range(10):
        chance.shuffle(order)
        for number in order:
            put(rows, number)
        assert all(rows.get(key) for key in KEYS)


def test_what_is_dropped_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 0)
    rows = RowCache(20 * (ENTRY_BYTES + 20))
    put(rows, 0)
    for _ in range(10):
        for number in range(1, 15):
            put(rows, number)
            rows.drop(KEYS[number])
            rows.drop(KEYS[number])
    assert rows.get(KEYS[0])


def test_writing_one_row_again_takes_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 0)
    rows = RowCache(20 * (ENTRY_BYTES + 20))
    put(rows, 1)
    for _ in range(100):
        put(rows, 2)
    assert rows.get(KEYS[1])


def test_of_the_objects_too_what_was_not_written_for_longest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 2)
    rows = RowCache()
    put(rows, 0)
    put(rows, 1)
    written = put(rows, 0)
    put(rows, 2)
    assert rows.get(KEYS[0]) is written


def test_bytes_are_kept_beside_objects_for_as_long_as_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 10)
    rows = RowCache()
    for number in range(100):
        put(rows, number)
        if number % 2:
            rows.drop(KEYS[number - 3])
        assert rows._bodies.keys() == rows._rows.keys()


def test_a_row_kept_as_bytes_stays_so_and_is_an_object_again_if_it_goes_on_talking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each message the latest version counts, however it is kept; the objects that others have stay theirs."""
    monkeypatch.setattr(row_cache, "ROWS_AS_OBJECTS", 1)
    rows = RowCache()
    put(rows, 0)
    other = put(rows, 1)
    for number in range(1, row_cache.PROMOTED):
        written = Row(number, Conversation(number))
        rows.put(KEYS[0], written, encode(written.conversation))
        assert rows.get(KEYS[0]) == written
        assert rows.get(KEYS[0]) is not written
        assert rows.get(KEYS[1]) is other
    written = put(rows, 0)
    assert rows.get(KEYS[0]) is written
    assert rows.get(KEYS[1]) == other
