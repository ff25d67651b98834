"""What a program hands to `TurnTake`: what is plainly meant is taken, the rest is refused with words that help, and
nothing that a store could not read again gets into one."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Later
from harness.turns import ADA, only_turn
from turntake import (
    Arrival,
    Attachment,
    ConfigurationError,
    ConversationKey,
    InvalidMessage,
    Message,
    Touch,
    Turn,
    TurnTake,
)
from turntake.testing.clock import VirtualClock

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOON_MS = 1_794_744_000_000
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def nested(levels: int) -> Any:
    """A list in a list, so many levels deep."""
    return [nested(levels - 1)] if levels > 1 else []


def message(**parts: Any) -> Message:
    return Message(**{"id": "m1", "text": "hi"} | parts)


TAKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": 7}, {"id": "7"}),
    ({"id": ID}, {"id": str(ID)}),
    ({"sender": 4917}, {"sender": "4917"}),
    ({"sender": None}, {"sender": ""}),
    ({"reply_to": 6}, {"reply_to": "6"}),
    (
        {"text": None, "attachments": [Attachment("image", id=5)]},  # type: ignore[arg-type]
        {"text": "", "attachments": (Attachment("image", id="5"),)},
    ),
    ({"text": "cut \ud83d"}, {"text": "cut ?"}),
    ({"sent_at": NOON}, {"sent_at": NOON_MS}),
    ({"metadata": None}, {"metadata": {}}),
    ({"metadata": {"nested": [1, {"deep": None}]}}, {"metadata": {"nested": [1, {"deep": None}]}}),
    ({"metadata": {"deep": nested(62)}}, {"metadata": {"deep": nested(62)}}),
    ({"metadata": {1: ("one", NOON)}}, {"metadata": {"1": ["one", "2026-11-15T12:00:00Z"]}}),
    (
        {"attachments": ({"kind": "image", "mimeType": "a/b"},)},
        {"attachments": (Attachment("image", mime_type="a/b"),)},
    ),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "`id` is empty: give each message an id of its own"),
    ({"id": None}, "`id` is None: give each message an id of its own"),
    ({"id": True}, "`id` is of type bool: write a text or an integer"),
    ({"id": 7.0}, "`id` is of type float"),
    ({"id": b"m1"}, "`id` is of type bytes: write a text or an integer (bytes: `.decode()` them)"),
    ({"id": "\ud83d"}, "`id` holds half a character"),
    ({"id": "x" * 1_025}, "`id` is longer than 1024 bytes"),
    ({"id": "ü" * 513}, "`id` is longer than 1024 bytes"),
    ({"text": b"hi"}, "`text` is of type bytes: write a text (bytes: `.decode()` them)."),
    ({"text": 5}, "`text` is of type int: write a text."),
    ({"sender": ["ada"]}, "`sender` is of type list"),
    ({"sent_at": 1_794_744_000.25}, "`sent_at` is of type float: write milliseconds since 1970 as an integer"),
    ({"sent_at": True}, "`sent_at` is of type bool"),
    ({"sent_at": NOON.replace(tzinfo=None)}, "`sent_at` is a datetime without a time zone"),
    ({"sent_at": "2026-11-15T12:00:00Z"}, "`sent_at` is of type str"),
    ({"sent_at": -1}, "`sent_at` lies before 1970"),
    ({"reply_to": 1.5}, "`reply_to` is of type float"),
    ({"metadata": ["a"]}, "`metadata` is of type list: write a dict."),
    ({"metadata": {"at": object()}}, "`metadata` holds what JSON cannot say (Encoding objects of type object"),
    ({"metadata": {"deep": nested(100)}}, "`metadata` is nested too deeply: at most 64 levels are kept."),
    ({"metadata": {"deep": nested(63)}}, "`metadata` is nested too deeply: at most 64 levels are kept."),
    ({"metadata": {"n": 2**64}}, "`metadata` holds a number beyond 64 bits"),
    ({"metadata": {"half": "\ud83d"}}, "`metadata` holds half a character"),
    ({"metadata": {"\ud83d": "half"}}, "`metadata` holds half a character"),
    ({"amends": "\ud83d"}, "`amends` holds half a character"),
    ({"attachments": "image"}, "`attachments` is of type str: write a tuple of Attachment"),
    ({"attachments": ({"url": "x"},)}, "`attachments` holds a dict that is none: Object missing required field `kind`"),
    ({"attachments": ("image",)}, "`attachments` holds a value of type str: write Attachment"),
    ({"attachments": (Attachment(None),)}, "`attachment.kind` is missing"),  # type: ignore[arg-type]
    ({"attachments": (Attachment("image", url=5),)}, "`attachment.url` is of type int"),  # type: ignore[arg-type]
    ({"attachments": (Attachment("image", metadata=[1]),)}, "`attachment.metadata` is of type list"),  # type: ignore[arg-type]
    ({"amends": 1.0}, "`amends` is of type float"),
    ({"is_deletion": 1}, "`is_deletion` is of type int: write True or False"),
    ({"received_at": NOON}, "`received_at` is of type datetime: write an integer, or leave it out."),
]


@pytest.mark.parametrize(("parts", "kept"), TAKEN, ids=lambda each: str(each)[:40])
async def test_what_is_plainly_meant_is_taken(parts: dict[str, Any], kept: dict[str, Any], tmp_path: Path) -> None:
    """Read back from a file, so that it is what the next process sees."""
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept") as turns:
        (receipt,) = await turns.accept([Arrival(ADA, message(**parts))])
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept") as turns:
        snapshot = await turns.store.find(ADA)
    assert receipt.status == "buffered"
    assert snapshot is not None
    (stored,) = snapshot.messages
    assert {name: getattr(stored, name) for name in kept} == kept


@pytest.mark.parametrize(("parts", "says"), REFUSED, ids=lambda each: str(each)[:40])
async def test_what_cannot_be_a_message_is_refused_in_words(parts: dict[str, Any], says: str) -> None:
    """With all others of its call, of which none is buffered; the next call is none the worse for it."""
    async with TurnTake("memory://", role="accept") as turns:
        with pytest.raises(InvalidMessage) as refused:
            await turns.accept([Arrival(ADA, message(id="m0")), Arrival(ADA, message(**parts))])
        assert says in str(refused.value)
        assert await turns.store.find(ADA) is None
        assert (await turns.receive("hi", conversation="ada", id="m1")).status == "buffered"


async def test_integers_as_some_platforms_have_them_are_answered(tmp_path: Path) -> None:
    """Telegram's ids of messages, people and chats are numbers: nobody is stuck by them, after a restart either."""
    url, clock, heard = f"sqlite:///{tmp_path}/t.db", VirtualClock(2_000_000_000_000), []

    async def answer(turn: Turn) -> None:
        heard.append((str(turn.conversation), turn.messages[0].id, turn.messages[0].sender))

    async with TurnTake(url, role="accept", clock=clock) as turns:
        receipt = await turns.receive("hi", conversation=-100_200, id=7, sender=42)
        again = await turns.receive("hi", conversation="-100200", id="7")
        await turns.receive("hi", conversation="bob", id="b1")
    async with TurnTake(url, agent=answer, clock=clock):
        await clock.advance(60_000)
    assert (receipt.status, again.status) == ("buffered", "duplicate")
    assert sorted(heard) == [("default:generic:default:-100200", "7", "42"), ("default:generic:default:bob", "b1", "")]


@pytest.mark.parametrize(
    ("arrival", "says"),
    [
        (lambda: Arrival("ada", message()), "The key is of type str: build it with ConversationKey.of()."),  # type: ignore[arg-type]
        (lambda: Arrival(ConversationKey(7), message()), "A part of the key is not a text"),  # type: ignore[arg-type]
        (lambda: Arrival(ConversationKey(["a"]), message()), "A part of the key is not a text"),  # type: ignore[arg-type]
        (lambda: Arrival(ADA, "hi"), "This is of type str, not a message: build one with Message(id=…, text=…)."),  # type: ignore[arg-type]
        (lambda: Arrival(ADA, message(), agent=5.0), "`agent` is of type float"),  # type: ignore[arg-type]
    ],
)
async def test_an_arrival_of_other_things_is_refused(arrival: Callable[[], Arrival], says: str) -> None:
    async with TurnTake("memory://", role="accept") as turns:
        with pytest.raises(InvalidMessage) as refused:
            await turns.accept([arrival()])
    assert says in str(refused.value)


@pytest.mark.parametrize("conversation", ["", None, 1.5, True, b"ada", ["ada"], "a\nb"])
async def test_a_conversation_that_has_no_name_is_refused(conversation: Any) -> None:
    async with TurnTake("memory://", role="accept") as turns:
        with pytest.raises(InvalidMessage, match="conversation"):
            await turns.receive("hi", conversation=conversation, id="m1")


@pytest.mark.parametrize("touch", [Touch("dance"), Touch("hold", 1.5), Touch("hold", "5"), "flush"])  # type: ignore[arg-type]
async def test_a_sign_that_there_is_not_is_refused(touch: Any) -> None:
    """A pause of 1.5 ms would be kept as a deadline that no store can read."""
    async with TurnTake("memory://", role="accept") as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        with pytest.raises(InvalidMessage):
            await turns.touch(ADA, touch)


async def test_reports_from_outside_are_checked() -> None:
    async with TurnTake("memory://", role="accept") as turns:
        for report in (
            turns.fail("t1", "no", retry_after_ms=1.5),  # type: ignore[arg-type]
            turns.fail("t1", "no", attempt="1"),  # type: ignore[arg-type]
            turns.extend("t1", lease_ms=-1),
            turns.complete("t1", ("one", 2)),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidMessage):
                await report


async def test_one_text_completes_a_turn_as_one_reply() -> None:
    """And not as one for each of its letters."""
    clock = VirtualClock()
    async with TurnTake("memory://", agent=Later(), clock=clock) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(5_000)
        record = await turns.complete((await only_turn(turns)).id, "hello")
    assert record is not None
    assert record.turn is not None
    assert record.turn.progress.replies == ("hello",)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"concurrency": "5"}, {"lease_ms": 1.5}, {"keep_ms": -1}])
def test_options_in_code_are_checked_as_those_in_a_file(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))} = .*: expected an integer"):
        TurnTake("memory://", **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rules": ["silence_ms"]}, "rules= is of type list: write Rules"),
        ({"rules": {"tenant": {"acme": {"min_messages": 9, "max_messages": 5}}}}, "min_messages is above max_messages"),
        ({"rules": "quick"}, 'There is no preset "quick"; there are: complex-inquiry'),
        ({"role": "worker"}, "There is no role 'worker'; there are: all, accept, work."),
        ({"agent": "echo"}, "agent= is of type str: give a function that takes a Turn"),
        ({"yields": "tokens"}, "yields = 'tokens': expected one of"),
    ],
)
def test_arguments_of_other_kinds_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    """And not at the first message."""
    with pytest.raises(ConfigurationError) as refused:
        TurnTake("memory://", **options)
    assert says in str(refused.value)


async def test_what_receive_does_not_take_is_named_with_what_does() -> None:
    async with TurnTake("memory://", role="accept") as turns:
        with pytest.raises(TypeError, match=r"receive\(\) takes no 'metadata', .*turns\.accept\("):
            await turns.receive("hi", conversation="ada", id="m1", metadata={"order": "7"})  # type: ignore[arg-type]
