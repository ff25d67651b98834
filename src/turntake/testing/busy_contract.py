"""What every store must do with messages that come while their conversation is being answered, by example."""

import pytest

from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended, Claim
from turntake.rules.rules import OnStale, Rules
from turntake.testing.clock import VirtualClock

EVE = ConversationKey.of("eve")
LEASE_MS = 60_000
STEER = Rules(on_busy="steer")
ANSWER = Progress(("late",), is_final=True)


async def said(store: Store, id: str, rules: Rules) -> Appended:
    (answer,) = await store.append([Append(EVE, Message(id, f"text of {id}"), rules)])
    return answer


async def taken(store: Store) -> Claim:
    (claim,) = await store.claim(1, LEASE_MS)
    return claim


def texts(claim: Claim) -> list[str]:
    return [message.text.removeprefix("text of ") for message in claim.messages]


def texts_if(claim: Claim | None) -> list[str]:
    assert claim is not None
    return texts(claim)


class BusyContract:
    """Part of `StoreContract`, which has the fixtures."""

    async def disturbed(self, store: Store, clock: VirtualClock, rules: Rules) -> Claim:
        """A turn of one message, during whose answer another came."""
        await said(store, "m1", rules)
        await clock.advance(1_000)
        claim = await taken(store)
        assert (await said(store, "m2", rules)).interrupted is None
        return claim

    async def test_a_stale_answer_is_given_anew_to_all_messages(self, store: Store, clock: VirtualClock) -> None:
        """Saving it is refused and merges both in the same step; the newer message's timer runs on."""
        claim = await self.disturbed(store, clock, Rules(on_stale="regenerate"))
        await clock.advance(400)
        assert not await store.save(claim, ANSWER, LEASE_MS)
        assert not await store.settle(claim, Answered(("late",)))
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.closed is not None
        assert (record.status, record.closed.reason) == ("interrupted", "stale")
        assert await store.next_due() == clock.now() + 600
        await clock.advance(600)
        assert texts(await taken(store)) == ["m1", "m2"]

    async def test_a_discarded_answer_leaves_only_what_is_newer(self, store: Store, clock: VirtualClock) -> None:
        """The history keeps the turn with the answer that was not sent; its messages come again to nobody."""
        claim = await self.disturbed(store, clock, Rules(on_stale="discard"))
        assert not await store.save(claim, ANSWER, LEASE_MS)
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.turn is not None
        assert (record.status, record.turn.progress) == ("discarded", ANSWER)
        assert (await store.letters.list(10)).items == ()
        await clock.advance(1_000)
        assert texts(await taken(store)) == ["m2"]

    @pytest.mark.parametrize("on_stale", ["discard", "regenerate"])
    async def test_stale_answers_are_limited(self, store: Store, clock: VirtualClock, on_stale: OnStale) -> None:
        """After `max_interrupts` the answer is sent, whatever waits."""
        rules = Rules(on_stale=on_stale, max_interrupts=1, typing_inference_ms=0)
        claim = await self.disturbed(store, clock, rules)
        assert not await store.save(claim, ANSWER, LEASE_MS)
        await clock.advance(1_000)
        again = await taken(store)
        await said(store, "m3", rules)
        assert await store.save(again, ANSWER, LEASE_MS)
        assert await store.settle(again, Answered(("late",)))

    async def test_nothing_is_stale_after_the_point_of_no_return(self, store: Store, clock: VirtualClock) -> None:
        """What was committed or began to leave is completed."""
        claim = await self.disturbed(store, clock, Rules(on_stale="regenerate"))
        assert await store.save(claim, Progress(), LEASE_MS)
        await said(store, "m3", Rules(on_stale="regenerate"))
        assert await store.save(claim, ANSWER, LEASE_MS)
        assert await store.settle(claim, Answered(("late",)))

    @pytest.mark.parametrize(
        "settlement", [Answered(("late",)), Retry(0, is_failure=False, progress=ANSWER)], ids=["answered", "completed"]
    )
    async def test_an_answer_that_is_saved_by_its_settlement_may_be_stale(
        self, store: Store, clock: VirtualClock, settlement: Answered | Retry
    ) -> None:
        """Where nothing is sent, or the agent completes the turn from outside, there is no other save."""
        claim = await self.disturbed(store, clock, Rules(on_stale="regenerate"))
        assert not await store.settle(claim, settlement)
        assert not await store.settle(claim, settlement)
        await clock.advance(1_000)
        assert texts(await taken(store)) == ["m1", "m2"]

    async def test_to_say_nothing_is_never_stale(self, store: Store, clock: VirtualClock) -> None:
        """An agent that answers by its own ways says nothing here, and is not asked again."""
        claim = await self.disturbed(store, clock, Rules(on_stale="regenerate"))
        assert await store.settle(claim, Answered())

    async def test_forgetting_a_discarded_turn_forgets_its_messages(self, store: Store, clock: VirtualClock) -> None:
        """They are nobody else's; those of an interrupted turn belong to the one that follows it."""
        claim = await self.disturbed(store, clock, Rules(on_stale="discard"))
        assert not await store.save(claim, ANSWER, LEASE_MS)
        await clock.advance(1_000)
        assert await store.history.forget(clock.now()) == 1
        assert await store.history.turn(claim.turn.id) is None
        assert (await said(store, "m1", Rules())).status == "buffered"
        await clock.advance(3_000)
        assert texts(await taken(store)) == ["m2", "m1"]

    async def test_what_waits_can_be_absorbed_by_the_turn_under_way(self, store: Store, clock: VirtualClock) -> None:
        """It is settled with the turn, under the turn's own id; nothing is left to wait."""
        claim = await self.disturbed(store, clock, STEER)
        grown = await store.absorb(claim, STEER)
        assert grown is not None
        assert (grown.turn.id, grown.epoch, texts(grown)) == (claim.turn.id, claim.epoch, ["m1", "m2"])
        assert await store.absorb(claim, STEER) == grown
        assert await store.settle(claim, Answered(("both",)))
        assert await store.next_due() is None
        (record,) = await store.history.turns(EVE, 10)
        assert (record.id, [message.id for message in record.messages]) == (claim.turn.id, ["m1", "m2"])

    async def test_a_retry_includes_what_was_absorbed(self, store: Store, clock: VirtualClock) -> None:
        """After a failure as after a crash; what came since waits."""
        claim = await self.disturbed(store, clock, STEER)
        await store.absorb(claim, STEER)
        await said(store, "m3", STEER)
        await store.settle(claim, Retry(0))
        again = await taken(store)
        assert (again.turn.id, texts(again)) == (claim.turn.id, ["m1", "m2"])
        await clock.advance(LEASE_MS)
        crashed = await taken(store)
        assert (crashed.turn.id, texts(crashed)) == (claim.turn.id, ["m1", "m2"])
        await store.settle(crashed, Answered())
        assert texts(await taken(store)) == ["m3"]

    async def test_a_dead_letter_has_what_was_absorbed(self, store: Store, clock: VirtualClock) -> None:
        """And so has what comes back from it."""
        claim = await self.disturbed(store, clock, STEER)
        await store.absorb(claim, STEER)
        await store.settle(claim, Dead("gave up"))
        letter = await store.letters.get(claim.turn.id)
        assert letter is not None
        assert [message.id for message in letter.messages] == ["m1", "m2"]
        await store.letters.retry(claim.turn.id)
        assert texts(await taken(store)) == ["m1", "m2"]

    async def test_an_edit_is_absorbed_with_the_message_that_it_changes(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """And counts as no message of its own."""
        claim = await self.disturbed(store, clock, STEER)
        await store.append([Append(EVE, Message("a1", "text of better", amends="m2"), STEER)])
        assert texts_if(await store.absorb(claim, STEER)) == ["m1", "better"]
        await store.settle(claim, Dead("gave up"))
        (letter,) = (await store.letters.list(10)).items
        assert letter.count == 2

    async def test_what_was_absorbed_is_forgotten_with_its_turn(self, store: Store, clock: VirtualClock) -> None:
        """All of it, and no more."""
        claim = await self.disturbed(store, clock, STEER)
        await store.absorb(claim, STEER)
        await said(store, "m3", STEER)
        await store.settle(claim, Answered())
        await clock.advance(5_000)
        assert await store.history.forget(clock.now()) == 1
        assert await store.history.turn(claim.turn.id) is None
        assert await store.history.turns(EVE, 10) == []
        assert texts(await taken(store)) == ["m3"]
        assert (await said(store, "m2", STEER)).status == "buffered"

    async def test_a_turn_absorbs_no_more_than_it_may_have(self, store: Store, clock: VirtualClock) -> None:
        """What would be too much waits for the next turn, all of it."""
        rules = Rules(on_busy="steer", capacity=2, typing_inference_ms=0)
        claim = await self.disturbed(store, clock, rules)
        await said(store, "m3", rules)
        grown = await store.absorb(claim, rules)
        assert grown is not None
        assert texts(grown) == ["m1"]

    async def test_a_turn_absorbs_no_more_bytes_than_it_may_have(self, store: Store, clock: VirtualClock) -> None:
        """A long message waits for the next turn."""
        rules = Rules(on_busy="steer", max_turn_bytes=1_000)
        claim = await self.busy(store, clock)
        await store.append([Append(EVE, Message("long", "x" * 980), rules)])
        assert texts_if(await store.absorb(claim, rules)) == ["m1"]

    async def test_nothing_is_absorbed_unless_the_rules_say_so(self, store: Store, clock: VirtualClock) -> None:
        """Nor once the answer is complete, nor by somebody who lost the claim."""
        claim = await self.disturbed(store, clock, Rules())
        assert texts_if(await store.absorb(claim, Rules())) == ["m1"]
        await store.save(claim, ANSWER, LEASE_MS)
        assert texts_if(await store.absorb(claim, STEER)) == ["m1"]
        await store.settle(claim, Answered(("late",)))
        assert await store.absorb(claim, STEER) is None

    async def test_what_is_on_hold_is_not_absorbed(self, store: Store, clock: VirtualClock) -> None:
        """Somebody wants it to wait."""
        claim = await self.disturbed(store, clock, STEER)
        await store.touch(EVE, Touch("hold", 10_000), STEER)
        assert texts_if(await store.absorb(claim, STEER)) == ["m1"]

    async def test_an_interrupted_turn_gives_back_what_it_absorbed(self, store: Store, clock: VirtualClock) -> None:
        """It waits again with the rest, in order."""
        claim = await self.disturbed(store, clock, STEER)
        await store.absorb(claim, STEER)
        assert (await said(store, "m3", Rules(on_busy="interrupt"))).interrupted == claim.turn.id
        await clock.advance(3_000)
        merged = await taken(store)
        assert texts(merged) == ["m1", "m2", "m3"]
        assert merged.turn.id != claim.turn.id
        await store.settle(merged, Answered())
        newest, older = await store.history.turns(EVE, 10)
        assert (newest.id, older.id) == (merged.turn.id, claim.turn.id)

    async def test_a_rejected_message_is_listed_as_such(self, store: Store, clock: VirtualClock) -> None:
        """It is kept and numbered, nobody answers it, and the person is told about the first of them."""
        rules = Rules(on_busy="reject", busy_text="Later, please.")
        claim = await self.busy(store, clock)
        answers = [await said(store, id, rules) for id in ("m2", "m3", "m2")]
        assert [(answer.status, answer.reason, answer.seq, answer.notice) for answer in answers] == [
            ("rejected", "busy", 2, "Later, please."),
            ("rejected", "busy", 3, ""),
            ("duplicate", None, 0, ""),
        ]
        record = await store.history.turn(str(answers[0].rejected))
        assert record is not None
        assert (record.status, [message.id for message in record.messages]) == ("rejected", ["m2"])
        assert [each.status for each in await store.history.turns(EVE, 10)] == ["rejected", "rejected", "answering"]
        assert (await store.letters.list(10)).items == ()
        assert await store.settle(claim, Answered())
        assert await store.next_due() is None

    async def test_after_rejections_the_next_turn_begins_as_usual(self, store: Store, clock: VirtualClock) -> None:
        """And during it the person is told again."""
        rules = Rules(on_busy="reject", busy_text="Later, please.")
        claim = await self.busy(store, clock)
        await said(store, "m2", rules)
        await store.settle(claim, Answered())
        assert (await said(store, "m3", rules)).status == "buffered"
        await clock.advance(1_000)
        assert texts(await taken(store)) == ["m3"]
        assert (await said(store, "m4", rules)).notice == "Later, please."

    async def test_what_joins_others_that_wait_is_not_rejected(self, store: Store, clock: VirtualClock) -> None:
        """Something waits already, and will be answered with it."""
        await self.disturbed(store, clock, Rules())
        assert (await said(store, "m3", Rules(on_busy="reject"))).status == "buffered"

    async def test_rejected_messages_are_forgotten_as_turns_are(self, store: Store, clock: VirtualClock) -> None:
        """With their ids, once those are old enough."""
        rules = Rules(on_busy="reject")
        claim = await self.busy(store, clock)
        rejected = await said(store, "m2", rules)
        await store.settle(claim, Answered())
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 2
        assert await store.history.turn(str(rejected.rejected)) is None
        assert await store.find(EVE) is None

    async def busy(self, store: Store, clock: VirtualClock) -> Claim:
        """A turn that is being answered."""
        await said(store, "m1", Rules())
        await clock.advance(1_000)
        return await taken(store)
