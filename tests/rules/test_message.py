"""What a message is, and the order that messages have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.message import Attachment, Message, in_order, joined

invisible = st.text(st.sampled_from(" \t\n\r\u00a0\u2003\u200b\u200c\u200d\u2060\ufeff"))


@given(invisible)
def test_what_nobody_can_see_is_blank(text: str) -> None:
    """Spaces and zero-width characters, in any mixture, are no message."""
    assert Message("m1", text).is_blank


@given(invisible, st.characters(categories=["L", "N", "P", "S"]), invisible)
def test_one_visible_character_is_a_message(before: str, character: str, after: str) -> None:
    """However much space surrounds it."""
    assert not Message("m1", before + character + after).is_blank


def test_a_picture_without_words_is_a_message() -> None:
    """S4-13: stickers, photos and voice notes have no text."""
    assert not Message("m1", attachments=(Attachment("image"),)).is_blank


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((Message("b", seq=2, sent_at=1), Message("a", seq=1, sent_at=2)), ["b", "a"]),
        ((Message("b", seq=2, sent_at=1), Message("a", seq=1, sent_at=1)), ["a", "b"]),
        ((Message("b", seq=2, sent_at=1), Message("a", seq=1)), ["a", "b"]),
        ((Message("b", seq=1, received_at=9), Message("a", seq=2, received_at=5)), ["a", "b"]),
        ((Message("b", seq=2, received_at=5), Message("a", seq=1, received_at=5)), ["a", "b"]),
        ((), []),
    ],
    ids=["platform time", "same platform time", "one without platform time", "arrival", "same arrival", "none"],
)
def test_order(messages: tuple[Message, ...], expected: list[str]) -> None:
    """The platform's time where every message has it, else the arrival; the number decides a tie."""
    assert [message.id for message in in_order(messages)] == expected


def test_texts_are_joined_by_lines() -> None:
    """A picture between two texts leaves no empty line."""
    assert joined((Message("1", "a"), Message("2"), Message("3", "b"))) == "a\nb"
