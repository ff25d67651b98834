"""An agent that is a Python function: plain, async, or a generator."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from unittest.mock import Mock

import pytest

from harness.turns import AT_ONCE, answered_turns, only_turn, say
from turntake import Observer, Turn, TurnTake
from turntake.deliver.handler import Handler, HandlerSink
from turntake.deliver.options import Yields
from turntake.rules.conversation import Dead
from turntake.rules.records import Claim, TurnRecord


async def test_a_plain_function_runs_beside_the_event_loop() -> None:
    """Real time: a blocking handler runs in a thread, so another conversation is answered meanwhile."""
    blocked, free = threading.Event(), threading.Event()

    def answer(turn: Turn) -> str:
        if turn.text == "block":
            free.wait(10)
            blocked.set()
        else:
            free.set()
        return "done"

    async with TurnTake("memory://", rules=AT_ONCE, agent=answer) as turns:
        await say(turns, "block", to="ada")
        await say(turns, "go", to="bob")
        await asyncio.to_thread(blocked.wait, 10)
    assert blocked.is_set()


async def test_a_plain_handler_sees_the_context_it_was_called_in() -> None:
    seen: list[str] = []
    tenant: ContextVar[str] = ContextVar("tenant", default="lost")
    tenant.set("kept")

    def answer(turn: Turn) -> None:
        seen.append(tenant.get())

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer)
    async with turns, answered_turns(turns, 1):
        await turns.receive("hi", conversation="ada", id="m1")
    assert seen == ["kept"]


async def answered_with(agent: Handler, yields: Yields = "replies") -> TurnRecord:
    """What becomes of a turn that this agent gets."""
    async with TurnTake("memory://", rules=AT_ONCE, agent=agent, yields=yields) as turns:
        async with answered_turns(turns, 1):
            await say(turns, "hi")
        return await only_turn(turns)


async def streaming(turn: Turn) -> AsyncIterator[str | None]:
    for piece in ("One", None, " moment.", ""):
        yield piece


def stepwise(turn: Turn) -> Iterator[str]:
    yield "One"
    yield " moment."


class Streaming:
    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield "One"
        yield " moment."


@pytest.mark.parametrize(
    "agent", [streaming, stepwise, Streaming(), lambda turn: streaming(turn)], ids=["async", "plain", "object", "made"]
)
@pytest.mark.parametrize(
    ("yields", "replies"), [("replies", ("One", " moment.")), ("joined", ("One moment.",))], ids=["replies", "joined"]
)
async def test_what_a_generator_yields_is_the_answer(agent: Handler, yields: Yields, replies: tuple[str, ...]) -> None:
    """Each piece a reply, or all of them one, as a model streams it."""
    record = await answered_with(agent, yields)
    assert (record.status, record.turn and record.turn.progress.replies) == ("answered", replies)


async def test_what_is_yielded_leaves_at_once() -> None:
    """The person reads the first reply before the agent goes on to the second."""
    seen: list[tuple[str, ...]] = []

    async def answer(turn: Turn) -> AsyncIterator[str]:
        yield "One moment."
        record = await only_turn(turns)
        seen.append(record.turn.progress.replies if record.turn else ())
        yield "Done."

    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer)
    async with turns, answered_turns(turns, 1):
        await say(turns, "hi")
    assert seen == [("One moment.",)]


@pytest.mark.parametrize(
    ("result", "replies"),
    [
        ({"reply": "one"}, ("one",)),
        ({"replies": ["one", "two"]}, ("one", "two")),
        ({"reply": None}, ()),
        ({"reply": ""}, ()),
    ],
)
async def test_the_shapes_of_http_agents_are_right_in_python_too(result: object, replies: tuple[str, ...]) -> None:
    record = await answered_with(lambda turn: result)
    assert (record.status, record.turn and record.turn.progress.replies) == ("answered", replies)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"answer": "one"}, "this one brought a dict with the keys ['answer']."),
        ({"reply": "one", "replies": []}, "both `reply` and `replies`"),
        (b"one", "this one brought bytes."),
        (["one", 2], "this one brought a list that holds int, str."),
        (7, "this one brought int."),
    ],
)
async def test_any_other_result_says_what_to_return(result: object, says: str) -> None:
    record = await answered_with(lambda turn: result)
    assert record.closed is not None
    assert record.status == "dead"
    assert says in record.closed.error


async def test_a_generator_is_closed_before_its_turn_is_settled() -> None:
    """Its `finally` runs even if a piece of it is refused, so that a stream from a model does not stay open."""
    closed: list[bool] = []

    async def answer(turn: Turn) -> AsyncIterator[object]:
        try:
            yield 7
        finally:
            closed.append(True)

    class Settled(Observer):
        was_closed: tuple[bool, ...] = ()

        def dead(self, at: int, claim: Claim, dead: Dead, error: Exception | None) -> None:
            self.was_closed = tuple(closed)

    observer = Settled()
    turns = TurnTake("memory://", rules=AT_ONCE, agent=answer, observers=[observer])
    async with turns, answered_turns(turns, 1):
        await say(turns, "hi")
    assert observer.was_closed == (True,)


class Panic(BaseException):
    """As libraries in Rust raise it: not an Exception."""


@pytest.mark.parametrize("error", [SystemExit(3), Panic("index out of bounds")], ids=["exit", "panic"])
async def test_an_async_handler_cannot_end_the_process_or_its_attempt_without_a_word(error: BaseException) -> None:
    """As with a plain function, it is a failure of that turn alone."""

    async def answer(turn: Turn) -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await HandlerSink(answer).deliver(Mock(Turn))
