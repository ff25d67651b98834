"""Live rules on every kind of store."""

from turntake import ConversationKey, TurnTake
from turntake.buffer.store import Store
from turntake.rules.conversation import Touch
from turntake.rules.live import Said
from turntake.rules.scopes import DEFAULT, RuleScope
from turntake.testing.clock import VirtualClock

ANN, BOB = ConversationKey.of("ann", tenant="acme"), ConversationKey.of("bob")
ACME = RuleScope("tenant", "acme")
SLOW = {"silence_ms": 20_000, "typing_inference_ms": 0}


async def test_a_change_reaches_every_process_and_all_who_wait(store: Store, clock: VirtualClock) -> None:
    """And so does the way back."""
    async with (
        TurnTake(store, clock=clock, role="accept", rules=SLOW) as first,
        TurnTake(store, clock=clock, role="accept", rules=SLOW) as second,
    ):
        for key in (ANN, BOB):
            await second.receive("hi", conversation=key.conversation, tenant=key.tenant, id="m1")
        arrived_at = clock.now()
        await first.rule_keeper.change({ACME: Said({"silence_ms": 15_000})}, "ann")
        await second.rule_keeper.change({DEFAULT: Said({"silence_ms": 25_000})}, "bob")
        for keeper in (first.rule_keeper, second.rule_keeper):
            await keeper.refresh()
            await keeper.tell(lambda key: second.touch(key, Touch("rules")))
        assert [first.rules_for(key).silence_ms for key in (ANN, BOB)] == [15_000, 25_000]
        assert await store.next_due() == arrived_at + 15_000
        bob = await store.find(BOB)
        assert bob is not None
        assert bob.conversation.due_at == arrived_at + 25_000
        await second.rule_keeper.roll_back(0, "bob")
        await second.rule_keeper.tell(lambda key: second.touch(key, Touch("rules")))
        assert await store.next_due() == arrived_at + 20_000
