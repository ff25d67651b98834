"""What a channel's values promise: by which id a redelivery is known, and how a request's query is read."""

import pytest

from turntake.platforms.channel import ChatEvent, Request
from turntake.rules.message import Attachment


def test_a_message_is_known_by_the_platforms_id() -> None:
    assert ChatEvent(kind="message", id="m1", text="hi").message_id == "m1"


def test_kinds_that_share_ids_are_told_apart() -> None:
    """A button has the id of the message it belongs to, and an edit that of the message it changes."""
    ids = {
        ChatEvent(kind="message", id="m1").message_id,
        ChatEvent(kind="postback", id="m1").message_id,
        ChatEvent(kind="edit", id="m1", target="m0").message_id,
        ChatEvent(kind="edit", id="m1", target="m2").message_id,
        ChatEvent(kind="delete", id="m1", target="m0").message_id,
    }
    assert len(ids) == 5
    assert "postback:m1" in ids
    assert "edit:m0:m1" in ids


@pytest.mark.parametrize("id", ["", "m1"])
def test_the_second_edit_of_a_message_is_not_a_redelivery_of_the_first(id: str) -> None:
    """Some platforms give an edit no id, others that of its message; only its content tells them apart."""
    first = ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=5)
    assert first.message_id == ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=5).message_id
    others = [
        ChatEvent(kind="edit", id=id, target="m1", text="two", sent_at=5),
        ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=6),
        ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=5, sender="bob"),
        ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=5, attachments=(Attachment("image"),)),
        ChatEvent(kind="edit", id=id, target="m1", text="one", sent_at=5, metadata={"edits": 2}),
        ChatEvent(kind="delete", id=id, target="m1", text="one", sent_at=5),
    ]
    assert first.message_id not in {other.message_id for other in others}


def test_a_message_without_an_id_is_known_by_its_content() -> None:
    first = ChatEvent(kind="message", sender="ann", text="hi", sent_at=5)
    assert first.message_id == ChatEvent(kind="message", sender="ann", text="hi", sent_at=5).message_id
    assert first.message_id != ChatEvent(kind="message", sender="ann", text="hi", sent_at=6).message_id


def test_the_query_of_a_request() -> None:
    """Blank values count, the last of a name wins, and an address that cannot be read has none."""
    assert Request("GET", "https://a.example/x?a=1&b=&a=2").query == {"a": "2", "b": ""}
    assert Request("GET", "https://[broken?a=1").query == {}
