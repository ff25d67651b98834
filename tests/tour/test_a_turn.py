"""Read first: what turntake does, one feature a test. No mocks; time is virtual, so each test takes milliseconds."""

from collections.abc import Awaitable, Callable

from turntake import Arrival, ConversationKey, GiveUp, Message, RetryLater, Rules, Turn, TurnTake
from turntake.rules.conversation import Touch
from turntake.testing.clock import VirtualClock


async def test_a_burst_becomes_one_turn() -> None:
    """Three fragments, one after the other, reach the agent together and in order, once the person is done."""
    clock, handed_over = VirtualClock(), []
    turns = TurnTake("memory://", clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> str:
        handed_over.append((turn.text, turn.reason, turn.waited_ms))
        return "It is on its way!"

    async with turns:
        for number, text in enumerate(["Hey", "I have a question about my order", "#12345"]):
            await turns.receive(text, conversation="ada", id=f"m{number}")
            await clock.advance(400)
        await clock.advance(3_000)

    assert handed_over == [("Hey\nI have a question about my order\n#12345", "typing", 3_800)]


async def test_a_lone_message_waits_for_a_second_of_silence() -> None:
    clock, handed_over = VirtualClock(), list[str]()
    turns = TurnTake("memory://", agent=_noting(handed_over), clock=clock)
    async with turns:
        receipt = await turns.receive("Can you help?", conversation="ada", id="m1")
        assert receipt.reason == "silence"
        await clock.advance(999)
        assert handed_over == []
        await clock.advance(1)
        assert handed_over == ["Can you help?"]


async def test_typing_pushes_the_deadline_back() -> None:
    """A typing signal makes us wait longer, though never past the maximum wait, and never makes a turn by itself."""
    clock = VirtualClock()
    turns = TurnTake("memory://", agent=_silent, clock=clock)
    key = ConversationKey.of("ada")
    async with turns:
        assert await turns.touch(key, Touch("composing")) is None
        first = await turns.receive("So", conversation="ada", id="m1")
        assert first.due_at == clock.now() + 1_000
        conversation = await turns.touch(key, Touch("composing"))
        assert conversation is not None
        assert conversation.due_at == clock.now() + 5_000


async def test_somebody_who_never_stops_is_answered_at_max_wait() -> None:
    clock, handed_over = VirtualClock(), []
    turns = TurnTake("memory://", rules=Rules(silence_ms=2_500), clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> None:
        handed_over.append((len(turn.messages), turn.reason, turn.waited_ms))

    async with turns:
        for number in range(18):
            await turns.receive("and another thing", conversation="ada", id=f"m{number}")
            await clock.advance(2_000)
    assert handed_over[0] == (15, "max wait", 30_000)


async def test_a_message_during_the_answer_belongs_to_the_next_turn() -> None:
    clock, handed_over = VirtualClock(), []
    turns = TurnTake("memory://", clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> None:
        handed_over.append(turn.text)
        await clock.sleep(10_000)

    async with turns:
        await turns.receive("Where is my order?", conversation="ada", id="m1")
        await clock.advance(2_000)
        await turns.receive("It is #12345", conversation="ada", id="m2")
        await clock.advance(30_000)
    assert handed_over == ["Where is my order?", "It is #12345"]


async def test_or_it_interrupts_the_answer_if_the_rules_say_so() -> None:
    """With `on_busy="interrupt"` the running handler is cancelled and everything is answered once."""
    clock, answered = VirtualClock(), []
    turns = TurnTake("memory://", rules=Rules(on_busy="interrupt"), clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> None:
        await clock.sleep(10_000)
        answered.append(turn.text)

    async with turns:
        await turns.receive("Where is my order?", conversation="ada", id="m1")
        await clock.advance(2_000)
        await turns.receive("It is #12345", conversation="ada", id="m2")
        await clock.advance(30_000)
    assert answered == ["Where is my order?\nIt is #12345"]


async def test_a_redelivered_message_has_no_effect() -> None:
    clock, handed_over = VirtualClock(), list[str]()
    turns = TurnTake("memory://", agent=_noting(handed_over), clock=clock)
    async with turns:
        await turns.receive("Hello?", conversation="ada", id="m1")
        await clock.advance(5_000)
        again = await turns.receive("Hello?", conversation="ada", id="m1")
        await clock.advance(5_000)
    assert again.status == "duplicate"
    assert handed_over == ["Hello?"]


async def test_a_failing_agent_is_tried_again_with_the_same_turn() -> None:
    """Same id and same messages on every attempt; after the third failure the messages are a dead letter."""
    clock, attempts = VirtualClock(), []
    turns = TurnTake("memory://", clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> str:
        attempts.append((turn.id, turn.text, turn.attempt))
        raise RuntimeError("the model is out of order")

    async with turns:
        await turns.receive("Hello?", conversation="ada", id="m1")
        await clock.advance(60_000)
        letters = await turns.store.letters.list(limit=10)

    assert [(text, attempt) for _, text, attempt in attempts] == [("Hello?", 1), ("Hello?", 2), ("Hello?", 3)]
    assert len({turn_id for turn_id, _, _ in attempts}) == 1
    assert [(letter.reason, letter.count) for letter in letters.items] == [("failed 3 times", 1)]


async def test_an_agent_may_ask_to_be_called_later_at_no_cost() -> None:
    clock, attempts = VirtualClock(), []
    turns = TurnTake("memory://", clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> str:
        attempts.append(turn.attempt)
        if len(attempts) < 6:
            raise RetryLater(after=2)
        return "Now!"

    async with turns:
        await turns.receive("Hello?", conversation="ada", id="m1")
        await clock.advance(30_000)
    assert attempts == [1, 2, 3, 4, 5, 6]


async def test_a_dead_letter_can_be_sent_again() -> None:
    clock, is_broken, answered = VirtualClock(), True, []
    turns = TurnTake("memory://", clock=clock)

    @turns.handler
    async def answer(turn: Turn) -> None:
        if is_broken:
            raise GiveUp("no key for the model")
        answered.append(turn.text)

    async with turns:
        await turns.receive("Hello?", conversation="ada", id="m1")
        await clock.advance(2_000)
        is_broken = False
        (letter,) = (await turns.store.letters.list(limit=10)).items
        await turns.retry_letter(letter.id)
        await clock.advance(100)
    assert answered == ["Hello?"]


async def test_a_turn_knows_why_it_waited() -> None:
    clock = VirtualClock()
    turns = TurnTake("memory://", agent=_silent, clock=clock)
    key = ConversationKey.of("ada")
    async with turns:
        await turns.receive("One", conversation="ada", id="m1")
        await clock.advance(500)
        await turns.receive("Two", conversation="ada", id="m2")
        await turns.touch(key, Touch("composing"))
        await clock.advance(10_000)
        (record,) = await turns.store.history.turns(key, limit=10)
    assert record.turn is not None
    assert [decision.reason for decision in record.turn.decisions] == ["silence", "typing", "activity"]


async def test_people_and_topics_never_mix() -> None:
    clock, handed_over = VirtualClock(), list[str]()
    turns = TurnTake("memory://", agent=_noting(handed_over), clock=clock)
    async with turns:
        await turns.receive("I am Ada", conversation="ada", id="m1")
        await turns.receive("I am Bob", conversation="bob", id="m1")
        await turns.receive("About the interview", conversation="ada", topic="interview", id="m1")
        await clock.advance(5_000)
    assert sorted(handed_over) == ["About the interview", "I am Ada", "I am Bob"]


async def test_blank_messages_are_not_buffered() -> None:
    clock = VirtualClock()
    turns = TurnTake("memory://", agent=_silent, clock=clock)
    async with turns:
        blank = await turns.accept([Arrival(ConversationKey.of("ada"), Message("m1", text=" \n\u200b"))])
    assert [receipt.status for receipt in blank] == ["ignored"]


async def _silent(turn: Turn) -> None:
    return None


def _noting(texts: list[str]) -> Callable[[Turn], Awaitable[None]]:
    async def answer(turn: Turn) -> None:
        texts.append(turn.text)

    return answer
