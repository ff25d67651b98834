"""The event stream: each step as the JSON that watchers read, and watchers who come, go and fall behind."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turntake import ConversationKey, Message
from turntake.http.events import frame
from turntake.observe.observer import Observer, Observers
from turntake.observe.stream import QUEUE_CHARACTERS, QUEUE_LENGTH, Stream
from turntake.rules.conversation import Answered, Buffer, Conversation, Dead, ReplyReport, Retry, SealedTurn, Touch
from turntake.rules.deadline import Deadline
from turntake.rules.records import Appended, Claim
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
START = 1_700_000_000_000
HI = Message("m1", "a secret", received_at=START + 100)


def claim(attempt: int) -> Claim:
    """Two messages, due at 1 s, first claimed at 2 s; the lease of this attempt ends at 60 s."""
    turn = SealedTurn(
        "t1", 1, 2, Deadline(START + 1_000, "silence"), START + 2_000, START + 200, START + 60_000, (), attempt=attempt
    )
    return Claim(ADA, 7, turn, (HI, Message("m2", "more", received_at=START + 200)))


def collecting() -> Conversation:
    due = Deadline(START + 4_000, "activity")
    return Conversation(3, 0, Buffer(1, START, START, due, due, ()))


Tell = Callable[[Observers], None]
STEPS: dict[str, tuple[Tell, str, dict[str, Any]]] = {
    "received": (
        lambda to: to.tell(
            Observer.received, ADA, HI, Appended("buffered", "collecting", 2, START + 1_000, "silence", seq=2)
        ),
        "buffered",
        {"turnId": "", "messageId": "m1", "messages": 2, "dueAt": "2023-11-14T22:13:21.000Z", "reason": "silence"},
    ),
    "received during an answer": (
        lambda to: to.tell(Observer.received, ADA, HI, Appended("buffered", "answering", 0, None, None)),
        "buffered",
        {"turnId": "", "messageId": "m1", "messages": 0, "dueAt": None, "reason": None},
    ),
    "touched": (
        lambda to: to.tell(Observer.touched, ADA, Touch("composing", 4_000), collecting()),
        "activity",
        {"turnId": "", "order": "composing", "dueAt": "2023-11-14T22:13:24.000Z", "reason": "activity"},
    ),
    "cleared": (
        lambda to: to.tell(Observer.touched, ADA, Touch("clear"), Conversation(3)),
        "dead-lettered",
        {"turnId": "", "reason": "cleared by order"},
    ),
    "reported": (
        lambda to: to.tell(Observer.reported, ADA, "t1", ReplyReport(1, "failed", START, "wamid.1", "a secret")),
        "delivery",
        {"turnId": "t1", "index": 1, "status": "failed"},
    ),
    "interrupted": (
        lambda to: to.tell(Observer.interrupted, ADA, "t1"),
        "interrupted",
        {"turnId": "t1"},
    ),
    "stopped": (
        lambda to: to.tell(Observer.stopped, ADA, "t1"),
        "stopped",
        {"turnId": "t1"},
    ),
    "rejected": (
        lambda to: to.tell(
            Observer.rejected, ADA, HI, Appended("rejected", "answering", 0, None, "busy", rejected="t9")
        ),
        "rejected",
        {"turnId": "t9", "messageId": "m1", "reason": "busy"},
    ),
    "absorbed": (
        lambda to: to.tell(Observer.absorbed, claim(1), (Message("m2"), Message("m3"))),
        "absorbed",
        {"turnId": "t1", "messages": 2},
    ),
    "discarded": (
        lambda to: to.tell(Observer.discarded, ADA, "t1"),
        "discarded",
        {"turnId": "t1"},
    ),
    "due": (
        lambda to: to.tell(Observer.due, claim(1)),
        "due",
        {"turnId": "t1", "dueAt": "2023-11-14T22:13:21.000Z", "reason": "silence"},
    ),
    "claimed": (
        lambda to: to.tell(Observer.claimed, claim(1)),
        "claimed",
        {
            "turnId": "t1",
            "attempt": 1,
            "messages": 2,
            "bufferedAt": "2023-11-14T22:13:20.100Z",
            "claimedAt": "2023-11-14T22:13:22.000Z",
            "leaseUntilAt": "2023-11-14T22:14:20.000Z",
            "dueAt": "2023-11-14T22:13:21.000Z",
            "reason": "silence",
        },
    ),
    "claimed again, now": (
        lambda to: to.tell(Observer.claimed, claim(2)),
        "claimed",
        {
            "turnId": "t1",
            "attempt": 2,
            "messages": 2,
            "bufferedAt": "2023-11-14T22:13:20.100Z",
            "claimedAt": "2023-11-14T22:13:25.000Z",
            "leaseUntilAt": "2023-11-14T22:14:20.000Z",
            "dueAt": "2023-11-14T22:13:21.000Z",
            "reason": "silence",
        },
    ),
    "answered": (
        lambda to: to.tell_settled(claim(1), Answered(("hello", "there")), None),
        "answered",
        {"turnId": "t1", "attempt": 1, "replies": ["hello", "there"]},
    ),
    "failed": (
        lambda to: to.tell_settled(claim(2), Retry(1_500, error="a secret"), ValueError("a secret")),
        "failed",
        {"turnId": "t1", "attempt": 2, "retryAfterMs": 1_500},
    ),
    "put off": (
        lambda to: to.tell_settled(claim(2), Retry(2_500, is_failure=False, error="a secret"), None),
        "retrying",
        {"turnId": "t1", "attempt": 2, "retryAfterMs": 2_500},
    ),
    "dead": (
        lambda to: to.tell_settled(claim(3), Dead("failed 3 times", "a secret"), None),
        "dead-lettered",
        {"turnId": "t1", "attempt": 3, "reason": "failed 3 times"},
    ),
}


@pytest.mark.parametrize(("tell", "kind", "facts"), STEPS.values(), ids=STEPS)
async def test_each_step_as_watchers_read_it(tell: Tell, kind: str, facts: dict[str, Any]) -> None:
    """All of its fields; replies are the only words, and neither a person's nor an error's are told."""
    observers = Observers(VirtualClock(START + 5_000))
    async with Stream(observers).watch() as queue:
        tell(observers)
        happening = queue.get_nowait()
        assert queue.empty()
    number, event, data, *_ = frame(happening, 7).decode().split("\n")
    assert (number, event) == ("id: 7", f"event: {kind}")
    about = {"at": "2023-11-14T22:13:25.000Z", "conversationKey": str(ADA)}
    assert msgspec.json.decode(data.removeprefix("data: ")) == about | facts


async def test_a_touch_of_a_conversation_in_which_nothing_waits_is_not_told() -> None:
    observers = Observers(VirtualClock())
    async with Stream(observers).watch() as queue:
        observers.tell(Observer.touched, ADA, Touch("composing", 4_000), Conversation(3))
        assert queue.empty()


async def test_one_watcher_who_leaves_takes_nothing_from_another() -> None:
    """Each is told of everything once. Only when the last one left does nobody hear of it."""
    observers = Observers(VirtualClock())
    stream = Stream(observers)
    async with stream.watch() as first:
        async with stream.watch() as second:
            observers.tell(Observer.interrupted, ADA, "t1")
        observers.tell(Observer.interrupted, ADA, "t2")
    observers.tell(Observer.interrupted, ADA, "t3")
    assert [first.get_nowait().turn_id for _ in range(first.qsize())] == ["t1", "t2"]
    assert [second.get_nowait().turn_id for _ in range(second.qsize())] == ["t1"]
    async with stream.watch() as third:
        observers.tell(Observer.interrupted, ADA, "t4")
    assert [third.get_nowait().turn_id for _ in range(third.qsize())] == ["t4"]


async def test_a_watcher_who_falls_behind_misses_what_comes_next() -> None:
    """What it has not read yet stays in order, so that it misses one stretch and not the beginning of everything."""
    observers = Observers(VirtualClock())
    async with Stream(observers).watch() as queue:
        for number in range(QUEUE_LENGTH + 1):
            observers.tell(Observer.interrupted, ADA, str(number))
        assert queue.qsize() == QUEUE_LENGTH
        assert queue.get_nowait().turn_id == "0"


async def test_long_answers_fill_a_queue_earlier_than_their_number_does() -> None:
    """What it takes in memory is bounded, whatever agents answer; and what was read makes room again."""
    observers = Observers(VirtualClock())
    long = Answered(("a" * (QUEUE_CHARACTERS // 4), "b" * (QUEUE_CHARACTERS // 4)))
    async with Stream(observers).watch() as queue:
        for _ in range(3):
            observers.tell_settled(claim(1), long, None)
        observers.tell(Observer.interrupted, ADA, "missed")
        assert queue.qsize() == 2
        queue.get_nowait()
        observers.tell(Observer.interrupted, ADA, "read")
        assert [queue.get_nowait().kind for _ in range(queue.qsize())] == ["answered", "interrupted"]


async def test_an_answer_of_any_length_reaches_whoever_keeps_up() -> None:
    observers = Observers(VirtualClock())
    async with Stream(observers).watch() as queue:
        for _ in range(3):
            observers.tell_settled(claim(1), Answered(("a" * 2 * QUEUE_CHARACTERS,)), None)
            assert queue.get_nowait().kind == "answered"
