"""What a message is, and the order that messages have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.rules.message import Attachment, Message, as_said, in_order, joined

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
    """Stickers, photos and voice notes have no text."""
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


@given(invisible, st.booleans())
def test_an_amendment_says_something_even_without_words(text: str, is_deletion: bool) -> None:
    """A deletion has no text, and an edit may take all of it away."""
    assert not Message("a1", text, amends="m1", is_deletion=is_deletion).is_blank


PICTURE, OTHER = (Attachment("image", "https://x.test/1"),), (Attachment("image", "https://x.test/2"),)
FIRST = Message("m1", "first", "ann", 7, reply_to="m0", metadata={"a": 1}, seq=1, received_at=9)
SECOND = Message("m2", "second", seq=2)
SHOWN = Message("m3", "look", attachments=PICTURE, seq=3)


def edit(seq: int, target: str, text: str = "", **more: Any) -> Message:
    return Message(f"a{seq}", text, seq=seq, amends=target, **more)


def deletion(seq: int, target: str, **more: Any) -> Message:
    return edit(seq, target, is_deletion=True, **more)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param((), (), id="nothing"),
        pytest.param((SECOND, FIRST), (SECOND, FIRST), id="no amendment: the order stays"),
        pytest.param((FIRST, SECOND, edit(3, "m1", "1st")), (replace(FIRST, text="1st"), SECOND), id="an edit"),
        pytest.param((FIRST, SECOND, deletion(3, "m1")), (SECOND,), id="a deletion"),
        pytest.param((FIRST, deletion(3, "m1")), (), id="all deleted"),
        pytest.param((FIRST, edit(3, "m9", "1st"), deletion(4, "m8")), (FIRST,), id="of unknown messages"),
        pytest.param(
            (FIRST, edit(5, "m1", "new"), edit(4, "m1", "old")),
            (replace(FIRST, text="new"),),
            id="the latest number",
        ),
        pytest.param((FIRST, edit(3, "m1", "1st"), deletion(4, "m1")), (), id="edited, then deleted"),
        pytest.param((FIRST, deletion(3, "m1"), edit(4, "m1", "1st")), (), id="deleted, and an edit that came late"),
        pytest.param((edit(1, "m2", "2nd"), SECOND), (replace(SECOND, text="2nd"),), id="an edit that came first"),
        pytest.param((FIRST, edit(3, "m1", "1st"), edit(4, "a3", "x")), (replace(FIRST, text="1st"),), id="of an edit"),
        pytest.param((FIRST, edit(3, "m1", " \u200b")), (), id="blank after editing"),
        pytest.param((SHOWN, edit(4, "m3")), (replace(SHOWN, text=""),), id="a picture without its caption"),
        pytest.param(
            (SHOWN, edit(4, "m3", "see", attachments=OTHER), edit(5, "m3", "so")),
            (replace(SHOWN, text="so", attachments=OTHER),),
            id="another picture, then another caption",
        ),
        pytest.param((Message("m1"), edit(2, "m2")), (Message("m1"),), id="what was blank before stays"),
    ],
)
def test_messages_are_shown_as_they_were_left(messages: tuple[Message, ...], expected: tuple[Message, ...]) -> None:
    """Amendments change text and attachments of others and are not shown; all else of a message stays."""
    assert as_said(messages) == expected


@pytest.mark.parametrize(
    ("sender", "amender", "is_allowed"),
    [("ann", "ann", True), ("ann", "ben", False), ("ann", "", True), ("", "ben", True), ("", "", True)],
)
def test_nobody_amends_what_somebody_else_said(sender: str, amender: str, is_allowed: bool) -> None:
    """Where both are known. Somebody else's amendment leaves an own one, which came earlier, in force."""
    said = Message("m1", "first", sender, seq=1)
    messages = (said, edit(2, "m1", "own", sender=sender), edit(3, "m1", "other", sender=amender))
    assert [message.text for message in as_said(messages)] == ["other" if is_allowed else "own"]
    assert as_said((said, deletion(2, "m1", sender=amender))) == (() if is_allowed else (said,))
