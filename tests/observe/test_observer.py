"""What an observer hears of a message's life, step by step, and that a broken one harms nobody."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from harness.fake_outbound import Postbox
from harness.platforms.word_channel import WordChannel
from harness.servers import Later, talking
from turntake import Arrival, ConversationKey, GiveUp, Message, RetryLater, Rules, StoreUnavailable, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.errors import FateUnknown, Forged, Unreadable
from turntake.observe.observer import STEPS, Observer, Observers
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Answered, Dead, Retry, Settlement, Touch
from turntake.rules.records import Claim
from turntake.rules.transitions import claim as claimed
from turntake.testing.clock import VirtualClock

ADA = ConversationKey.of("ada")
AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)


class Step(NamedTuple):
    name: str
    facts: tuple[Any, ...]


class Recorder(Observer):
    """Keeps every step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def of(self, name: str) -> tuple[Any, ...]:
        """What the only step of this name said."""
        (facts,) = (step.facts for step in self.steps if step.name == name)
        return facts


def _keeping(name: str) -> Callable[..., None]:
    def keep(self: Recorder, at: int, *facts: Any) -> None:
        assert at >= 1_700_000_000_000
        self.steps.append(Step(name, facts))

    return keep


for _step in STEPS:
    setattr(Recorder, _step.__name__, _keeping(_step.__name__))


class Promise(Sink):
    """An agent that always answers 202."""

    async def deliver(self, turn: Turn) -> Answer | Pending:
        return Pending(600_000)


async def hello(turn: Turn) -> list[str]:
    return ["hello", "there"]


async def after(
    recorder: Observer,
    agent: Sink | Callable[[Turn], Awaitable[object]],
    *,
    store: MemoryStore | None = None,
    during: Callable[[TurnTake], Awaitable[object]] | None = None,
    **options: Any,
) -> None:
    """Ada says something, and a minute goes by."""
    store = store or MemoryStore(VirtualClock())
    clock = store.clock
    assert isinstance(clock, VirtualClock)
    options = {"rules": AT_ONCE} | options
    async with TurnTake(store, agent=agent, clock=clock, observers=[recorder], **options) as turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
        if during is not None:
            await during(turns)
        await clock.advance(60_000)


async def test_a_life_from_received_to_answered() -> None:
    """Each step once, in order, with the platform's id of each reply."""
    recorder = Recorder()
    await after(recorder, hello, outbound=Postbox())
    assert recorder.names() == ["received", "due", "claimed", "replied", "replied", "answered"]
    key, message, appended = recorder.of("received")
    assert (key, message.id, appended.waiting) == (ADA, "m1", 1)
    replies = [step.facts[1:4] for step in recorder.steps if step.name == "replied"]
    assert replies == [(0, "hello", "sent-0"), (1, "there", "sent-1")]
    claim, answer = recorder.of("answered")
    assert (claim.turn.attempt, answer) == (1, Answered(("hello", "there")))


async def test_what_is_ignored_is_told_with_its_reason() -> None:
    recorder = Recorder()

    async def during(turns: TurnTake) -> None:
        await turns.receive("hi", conversation="ada", id="m1")
        blank, amendment = Message("m2", " "), Message("m3", "hey", amends="m1")
        await turns.accept([Arrival(ADA, blank), Arrival(ADA, amendment)])

    await after(recorder, hello, during=during)
    ignored = [(step.facts[1].id, step.facts[2]) for step in recorder.steps if step.name == "ignored"]
    assert sorted(ignored) == [("m1", "duplicate"), ("m2", "blank"), ("m3", "nothing to amend")]


@pytest.mark.parametrize(("word", "content", "error"), [("guess", b"[]", Forged), ("sesame", b"{", Unreadable)])
def test_a_webhook_that_is_turned_away_is_told(word: str, content: bytes, error: type[Exception]) -> None:
    recorder = Recorder()
    turns = TurnTake("memory://", role="accept", observers=[recorder])
    with talking(turns, channels={("knock", "sales"): WordChannel({"word": "sesame"})}) as client:
        client.post("/webhooks/knock/sales", content=content, headers={"x-word": word})
    channel, account, raised = recorder.of("refused")
    assert (channel, account, type(raised)) == ("knock", "sales", error)


async def test_a_touch_and_an_interruption_are_told() -> None:
    recorder = Recorder()

    async def slow(turn: Turn) -> None:
        await turn.extend()
        if len(turn.messages) == 1:
            await asyncio.Event().wait()

    async def during(turns: TurnTake) -> None:
        await turns.receive("more", conversation="ada", id="m2")
        await turns.touch(ADA, Touch("flush"))

    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    await after(recorder, slow, during=during, rules=rules)
    assert recorder.names()[3:6] == ["interrupted", "received", "touched"]
    assert recorder.of("interrupted")[0] == ADA
    assert recorder.of("touched")[1] == Touch("flush")


@pytest.mark.parametrize(
    ("error", "steps"),
    [
        (RuntimeError("no"), ["failed", "dead"]),
        (RetryLater(1), ["put_off", "put_off"]),
        (GiveUp("never"), ["dead"]),
    ],
)
async def test_what_went_wrong_is_told_with_the_exception(error: Exception, steps: list[str]) -> None:
    """So that an observer can show where it was raised, which no log line does."""
    recorder = Recorder()

    async def agent(turn: Turn) -> None:
        if turn.attempt <= 2:
            raise error

    await after(recorder, agent, rules=Rules(silence_ms=0, typing_inference_ms=0, max_attempts=2))
    ends = [step for step in recorder.steps if step.name in ("failed", "put_off", "dead")]
    assert [step.name for step in ends] == steps
    assert recorder.names().count("due") == 1
    assert recorder.names().count("claimed") == 1 + (steps != ["dead"]) + ("put_off" in steps)
    assert all(step.facts[2] is error for step in ends)
    assert all(isinstance(step.facts[1], Dead if step.name == "dead" else Retry) for step in ends)


async def test_a_turn_completed_through_the_api() -> None:
    """First the agent promises, then the answer is saved, then another claim sends it."""
    recorder = Recorder()

    async def during(turns: TurnTake) -> None:
        await turns.complete(recorder.of("claimed")[0].turn.id, ("done",))

    await after(recorder, Promise(), during=during, outbound=Postbox())
    assert recorder.names()[2:] == ["claimed", "pending", "completed", "due", "claimed", "replied", "answered"]
    assert recorder.of("pending")[1] == 600_000
    assert recorder.of("completed")[1] == ("done",)


async def test_an_agent_that_completes_a_turn_before_it_promises_to(caplog: pytest.LogCaptureFixture) -> None:
    """It calls another process, which ends the claim here. Nothing was lost by that, and nothing went wrong."""
    store, recorder = MemoryStore(VirtualClock()), Recorder()

    class Quick(Sink):
        async def deliver(self, turn: Turn) -> Answer | Pending:
            async with TurnTake(store, role="accept", clock=store.clock) as front:
                await front.complete(turn.id, ("done",))
            return Pending(600_000)

    with caplog.at_level(logging.WARNING, "turntake"):
        await after(recorder, Quick(), store=store)
    assert recorder.names() == ["received", "due", "claimed", "pending"]
    assert caplog.records == []
    (record,) = await store.history.turns(ADA, 10)
    assert record.status == "answered"


async def test_a_failure_reported_through_the_api_has_no_exception() -> None:
    recorder = Recorder()

    async def during(turns: TurnTake) -> None:
        await turns.fail(recorder.of("claimed")[0].turn.id, "no model", retry_after_ms=900_000)

    await after(recorder, Promise(), during=during)
    _, retry, error = recorder.of("failed")
    assert (retry, error) == (Retry(900_000, error="no model"), None)


async def test_that_a_turn_became_a_dead_letter_is_logged_without_an_exception_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An agent that reports its failure through the API raises nothing here."""
    clock = VirtualClock()
    turns = TurnTake(
        "memory://", rules=Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1), agent=Later(), clock=clock
    )
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(1_000)
        (record,) = await turns.store.history.turns(ADA, 10)
        with caplog.at_level(logging.WARNING, "turntake"):
            await turns.fail(record.id, "a secret")
    (line,) = caplog.records
    assert line.message == "The messages of a turn are a dead letter now"
    assert vars(line)["turn"] == record.id
    assert "a secret" not in str(vars(line))


async def test_a_reply_of_unknown_fate_is_told() -> None:
    class Silent(Postbox):
        async def send(self, to: Recipient, index: int, text: str) -> str:
            raise FateUnknown

    recorder = Recorder()
    await after(recorder, hello, outbound=Silent(), rules=Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1))
    assert recorder.of("reply_unknown")[1] == 0
    assert "replied" not in recorder.names()


async def test_a_stop_before_the_answer_is_told() -> None:
    async def stuck(turn: Turn) -> None:
        await asyncio.Event().wait()

    recorder = Recorder()
    await after(recorder, stuck, shutdown_ms=1)
    assert recorder.names()[2:] == ["claimed", "handed_back"]


async def test_a_turn_that_could_not_be_handed_back_is_not_told_as_if_it_were() -> None:
    """Somebody else took it over before this worker stopped."""
    store, recorder = MemoryStore(VirtualClock()), Recorder()

    async def stuck(turn: Turn) -> None:
        await asyncio.Event().wait()

    async def during(turns: TurnTake) -> None:
        conversation = store.model.conversations[ADA]
        store.model.conversations[ADA] = claimed(conversation, ADA, 3_600_000, store.clock.now())

    await after(recorder, stuck, store=store, during=during, shutdown_ms=1, lease_ms=3_600_000)
    assert recorder.names() == ["received", "due", "claimed"]


async def test_a_lost_claim_is_told() -> None:
    store, recorder = MemoryStore(VirtualClock()), Recorder()

    async def agent(turn: Turn) -> str:
        if turn.attempt == 1:
            conversation = store.model.conversations[ADA]
            store.model.conversations[ADA] = claimed(conversation, ADA, 60_000, store.clock.now())
        return "too late"

    await after(recorder, agent, store=store)
    assert recorder.names()[2:4] == ["claimed", "lost"]


async def test_a_turn_that_cannot_be_settled_is_told() -> None:
    class Away(MemoryStore):
        async def settle(self, claim: Claim, settlement: Settlement) -> bool:
            raise StoreUnavailable

    recorder = Recorder()
    await after(recorder, hello, store=Away(VirtualClock()), lease_ms=3_600_000)
    assert recorder.names()[2:] == ["claimed", "unsettled"]


async def test_an_observer_that_raises_harms_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; other observers, and the event stream, go on."""

    class Broken(Observer):
        def claimed(self, at: int, claim: Claim) -> None:
            raise RuntimeError("the dashboard is away")

    clock, recorder = VirtualClock(), Recorder()
    turns = TurnTake("memory://", rules=AT_ONCE, agent=hello, clock=clock, observers=[Broken(), recorder])
    with caplog.at_level(logging.ERROR, "turntake"):
        async with turns, turns.events.watch() as seen:
            for number in range(5):
                await turns.receive("hi", conversation=f"p{number}", id="m1")
            await clock.advance(10)
    assert recorder.names().count("answered") == 5
    assert [seen.get_nowait().kind for _ in range(seen.qsize())].count("claimed") == 5
    (record,) = caplog.records
    assert record.message == "An observer raised; that is logged once"
    assert record.exc_info is not None


async def test_an_observer_that_asks_a_cancelled_future_harms_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    """That raises CancelledError, which would end the loop that claims, without a word."""

    class Asking(Observer):
        def claimed(self, at: int, claim: Claim) -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.cancel()
            future.result()

    clock, recorder = VirtualClock(), Recorder()
    turns = TurnTake("memory://", rules=AT_ONCE, agent=hello, clock=clock, observers=[Asking(), recorder])
    async with turns:
        await turns.receive("hi", conversation="ada", id="m1")
        await clock.advance(10)
    assert recorder.names().count("answered") == 1
    assert "An observer raised" in caplog.text


def test_an_observer_without_a_name_harms_nobody_either(caplog: pytest.LogCaptureFixture) -> None:
    """A method may be any callable, and not each knows what it is called."""

    class Counter(Observer):
        refused = functools.partial(int, "not a number")  # type: ignore[assignment]

    with caplog.at_level(logging.ERROR, "turntake"):
        Observers(VirtualClock(), [Counter()]).tell(Observer.refused, "words", "", Forged("forged"))
    assert "An observer raised" in caplog.text


def test_a_step_that_nobody_cares_about_costs_nothing() -> None:
    """Not even a look at the clock; and those who came and left do not count."""

    class Counting(VirtualClock):
        looks = 0

        def now(self) -> int:
            self.looks += 1
            return super().now()

    class Listening(Observer):
        def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
            """Cares about this step alone."""

    clock, listening = Counting(), Listening()
    observers = Observers(clock, [Observer()])
    observers.add(listening)
    observers.tell(Observer.ignored, ADA, Message("m1", ""), "blank")
    assert clock.looks == 0
    observers.tell(Observer.interrupted, ADA, "t1")
    assert clock.looks == 1
    observers.remove(listening)
    observers.tell(Observer.interrupted, ADA, "t1")
    assert clock.looks == 1


def test_every_step_does_nothing_by_default() -> None:
    """An observer need not know all of them."""
    observer = Observer()
    assert len(STEPS) == 23
    for step in STEPS:
        arguments = range(step.__code__.co_argcount - 1)
        assert step(observer, *arguments) is None
        assert step.__doc__
