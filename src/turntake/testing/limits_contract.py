"""What every store must do with messages that are over a limit, by example."""

from turntake.buffer.store import Store
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim, TurnRecord
from turntake.rules.rules import Rules
from turntake.rules.words import NO_CUE, Cue
from turntake.testing.clock import VirtualClock

KIM = ConversationKey.of("kim")
RULES = Rules(limit_text="Slowly, please.")
OVER = "messages_per_minute"


def arrival(id: str, over: str = "", amends: str | None = None, cue: Cue = NO_CUE) -> Append:
    return Append(KIM, Message(id, f"text of {id}", amends=amends), RULES, cue=cue, over=over)


async def sent(store: Store, id: str, over: str = "", **more: object) -> Appended:
    (answer,) = await store.append([arrival(id, over, **more)])  # type: ignore[arg-type]  # as arrival() takes them
    return answer


async def claimed(store: Store) -> Claim:
    (claim,) = await store.claim(1, 60_000)
    return claim


def ids_of(record: Claim | TurnRecord) -> list[str]:
    return [message.id for message in record.messages]


async def history(store: Store) -> list[tuple[str, list[str]]]:
    return [(record.status, ids_of(record)) for record in await store.history.turns(KIM, 20)]


class LimitsContract:
    """Part of `StoreContract`, which has the fixtures."""

    async def test_what_is_over_a_limit_is_kept_beside_what_waits(self, store: Store, clock: VirtualClock) -> None:
        """It moves no deadline and belongs to no turn; it is listed as rejected, with the rule that limits it."""
        answers = await store.append([arrival("m1"), arrival("m2", OVER), arrival("m3"), arrival("m4", OVER)])
        assert [answer.status for answer in answers] == ["buffered", "rejected", "buffered", "rejected"]
        assert [answer.notice for answer in answers] == ["", "Slowly, please.", "", ""]
        await clock.advance(500)
        due_at = await store.next_due()
        late = await sent(store, "m5", "tenant_bytes_per_minute")
        assert (late.status, late.reason, late.waiting, late.due_at) == ("rejected", "tenant_bytes_per_minute", 0, None)
        assert await store.next_due() == due_at
        found = await store.find(KIM)
        assert found is not None
        assert [message.id for message in found.messages] == ["m1", "m3"]
        await clock.advance(3_000)
        claim = await claimed(store)
        assert ids_of(claim) == ["m1", "m3"]
        assert await store.settle(claim, Answered())
        record = await store.history.turn(str(late.rejected))
        assert record is not None
        assert record.closed is not None
        assert (ids_of(record), record.status, record.closed.reason) == (["m5"], "rejected", "tenant_bytes_per_minute")
        assert record.messages[0].text == "text of m5"
        assert (await store.letters.list(10)).items == ()

    async def test_what_is_over_a_limit_changes_no_answer(self, store: Store, clock: VirtualClock) -> None:
        """It neither interrupts it nor waits behind it."""
        await sent(store, "m1")
        await clock.advance(1_000)
        claim = await claimed(store)
        eager = Append(KIM, Message("m2", "no!"), Rules(on_busy="interrupt"), over=OVER)
        (answer,) = await store.append([eager])
        assert (answer.status, answer.interrupted, answer.state) == ("rejected", None, "answering")
        assert await store.settle(claim, Answered(("yes",)))
        assert await store.next_due() is None

    async def test_what_was_over_a_limit_is_known_when_it_comes_again(self, store: Store) -> None:
        """Whether or not there is room by then; and so is what was taken before the limit was reached."""
        await sent(store, "m1")
        await sent(store, "m2", OVER)
        again = [await sent(store, "m2"), await sent(store, "m2", OVER), await sent(store, "m1", OVER)]
        assert [(answer.status, answer.notice) for answer in again] == [("duplicate", "")] * 3
        assert await history(store) == [("rejected", ["m2"])]

    async def test_a_person_is_told_once_a_minute(self, store: Store, clock: VirtualClock) -> None:
        notices = []
        for number in range(4):
            notices.append((await sent(store, f"m{number}", OVER)).notice)
            await clock.advance(30_000)
        assert notices == ["Slowly, please.", "", "Slowly, please.", ""]

    async def test_a_conversation_may_begin_with_what_is_over_a_limit(self, store: Store, clock: VirtualClock) -> None:
        """Nothing is due. The next message begins it as any first one does, and all of it is forgotten."""
        first = await sent(store, "m1", OVER)
        assert (first.status, first.state, await store.next_due()) == ("rejected", "idle", None)
        assert (await sent(store, "m2")).seq == 1
        await clock.advance(1_000)
        claim = await claimed(store)
        assert ids_of(claim) == ["m2"]
        await store.settle(claim, Answered())
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 2
        assert await store.find(KIM) is None
        assert (await sent(store, "m1", OVER)).status == "rejected"

    async def test_what_is_over_a_limit_is_listed_where_it_came(self, store: Store, clock: VirtualClock) -> None:
        """Page by page too."""
        for turn in ("a", "b"):
            await store.append([arrival(turn), arrival(f"{turn}1", OVER), arrival(f"{turn}2", OVER)])
            await clock.advance(1_000)
            await store.settle(await claimed(store), Answered())
        expected = [["b2"], ["b1"], ["b"], ["a2"], ["a1"], ["a"]]
        assert [ids for _, ids in await history(store)] == expected
        paged: list[TurnRecord] = []
        while page := await store.history.turns(KIM, 1, paged[-1].range if paged else None):
            paged += page
        assert [ids_of(record) for record in paged] == expected

    async def test_forgetting_what_was_over_a_limit_spares_what_waits(self, store: Store, clock: VirtualClock) -> None:
        """Its id stays known for as long as ids do."""
        await store.append([arrival("m1"), arrival("m2", OVER)])
        closed_at = clock.now()
        await clock.advance(500)
        assert await store.history.forget(closed_at + 1, closed_at) == 1
        assert await history(store) == []
        assert (await sent(store, "m2")).status == "duplicate"
        assert await store.history.forget(closed_at + 1) == 1
        assert (await sent(store, "m2")).status == "buffered"
        await clock.advance(3_000)
        assert ids_of(await claimed(store)) == ["m1", "m2"]

    async def test_an_edit_over_a_limit_changes_nothing(self, store: Store, clock: VirtualClock) -> None:
        """It is listed itself. With nothing to change it is ignored, as ever."""
        assert (await sent(store, "e0", OVER, amends="m1")).status == "ignored"
        await sent(store, "m1")
        assert (await sent(store, "e1", OVER, amends="m1")).status == "rejected"
        assert await history(store) == [("rejected", ["e1"])]
        await clock.advance(1_000)
        assert [message.text for message in (await claimed(store)).messages] == ["text of m1"]

    async def test_a_stop_word_over_a_limit_stops(self, store: Store, clock: VirtualClock) -> None:
        """Unless there is nothing to stop: then it is rejected as all else is."""
        stop = Cue("stop")
        assert (await sent(store, "s0", OVER, cue=stop)).status == "rejected"
        await sent(store, "m1")
        stopped = await sent(store, "s1", OVER, cue=stop)
        assert (stopped.status, len(stopped.stopped)) == ("buffered", 1)
        claim = await claimed(store)
        assert ids_of(claim) == ["s1"]
        assert (await sent(store, "s2", OVER, cue=stop)).status == "rejected"
