"""No field twice: whoever looks at the first and whoever takes the last would see two messages."""

import json
from typing import Any

import msgspec
import pytest

from turntake.accept.activity import activity_in
from turntake.accept.messages import MessageBody, arrivals_in
from turntake.accept.repeated_names import FieldNames
from turntake.errors import Problem
from turntake.http.conversations import HoldBody


@pytest.mark.parametrize(
    "body",
    [
        '{"conversation": "a", "conversation": "victim", "id": "1"}',
        '{"conversation": "a", "id": "1", "text": "x", "text": "y"}',
        '{"conversation": "a", "id": "1", "conversatio\\u006e": "victim"}',
        '{"conversation" :"a","conversation":"victim","id":"1"}',
        '{"conversation"\t\n:"a","conversation":"victim","id":"1"}',
        '{"conversation": "a", "id": "1", "metadata": {"a": 1}, "id": "2"}',
        '[{"conversation": "a", "id": "1"}, {"conversation": "a", "id": "1", "id": "2"}]',
        '[{"conversation": "a", "id": "1", "text": ""}, {"conversation": "a", "id": "1", "text": "", "text": "x"}]',
    ],
)
def test_a_message_with_a_field_twice_is_refused(body: str) -> None:
    with pytest.raises(Problem, match="is there twice") as raised:
        arrivals_in(body.encode())
    assert raised.value.status == 400


@pytest.mark.parametrize(
    "message",
    [
        {"text": 'she said "id" and "text" and "text": twice'},
        {"text": "ä 👋 \\u0041"},
        {"attachments": [{"kind": "text", "id": "text", "name": "id", "metadata": {"id": 1, "text": {"id": 2}}}]},
        {"metadata": {"conversation": "x", "id": 2**60, "text": [{"text": 1.5}, {"text": 2}]}},
        {"sender": "sender", "replyTo": "id"},
    ],
)
def test_names_that_are_written_often_for_good_reasons_are_taken(message: dict[str, Any]) -> None:
    """In texts, as values, in what is nested, and with letters that JSON may write as escapes."""
    body = {"conversation": "a", "id": "1", **message}
    for written in (body, [body, body | {"id": "2"}]):
        for is_ascii in (True, False):
            assert arrivals_in(json.dumps(written, ensure_ascii=is_ascii).encode())


def test_other_bodies_are_held_to_it_too() -> None:
    with pytest.raises(Problem, match="`kind` is there twice"):
        activity_in(b'{"conversation": "a", "kind": "typing", "kind": "stopped"}')
    with pytest.raises(Problem, match="`forMs` is there twice"):
        FieldNames(HoldBody).refuse_repeated(b'{"forMs": 1, "forMs": 2}')


def test_a_body_that_only_the_second_look_finds_too_deep_is_refused_as_such() -> None:
    """Two readers of JSON stop at different depths."""
    for depth in range(900, 1_000):
        body = b'{"conversation": "a", "id": "1", "metadata": {"m": %s}}' % (b"[" * depth + b"]" * depth)
        with pytest.raises(Problem, match="nested too deeply"):
            arrivals_in(body)


def test_a_common_body_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost as much as reading it once."""
    monkeypatch.setattr(json, "loads", None)
    body = msgspec.json.encode([{"conversation": "a", "id": str(number), "text": "Hi! 👋"} for number in range(100)])
    FieldNames(MessageBody).refuse_repeated(body)
