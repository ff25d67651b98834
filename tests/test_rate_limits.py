"""Limits on what people send: whoever sends too much is told so, before anything is acknowledged."""

import pytest

from harness.fake_outbound import Postbox
from turntake.arrival import Arrival
from turntake.buffer.memory import MemoryStore
from turntake.deliver.turn import Turn
from turntake.errors import RateLimited
from turntake.observe.observer import Observer
from turntake.rules.key import ConversationKey
from turntake.rules.live import Said
from turntake.rules.message import Message
from turntake.rules.scopes import RuleScope
from turntake.service import TurnTake
from turntake.testing.clock import VirtualClock

ANN = ConversationKey.of("ann")


class Rejected(Observer):
    def __init__(self) -> None:
        self.ids: list[str] = []

    def rejected(self, at: int, key: ConversationKey, message: Message, appended: object) -> None:
        self.ids.append(message.id)


async def silent(turn: Turn) -> None:
    return None


def arrivals(*ids: str, text: str = "hi", **parts: str) -> list[Arrival]:
    return [
        Arrival(ConversationKey.of(parts.get("name", "ann"), tenant=parts.get("tenant", "")), Message(id, text))
        for id in ids
    ]


async def test_too_many_messages_of_a_conversation_are_refused_until_there_is_room() -> None:
    clock = VirtualClock()
    async with TurnTake(MemoryStore(clock), rules={"messages_per_minute": 2}, agent=silent, clock=clock) as turns:
        await turns.accept(arrivals("m1", "m2"))
        with pytest.raises(RateLimited, match=r"messages_per_minute = 2 .* send it again in 30 s") as caught:
            await turns.accept(arrivals("m3"))
        assert caught.value.after_ms == 30_000
        await turns.accept(arrivals("m1", name="bob"))
        await clock.advance(30_000)
        (receipt,) = await turns.accept(arrivals("m3"))
        assert receipt.status == "buffered"


async def test_a_list_is_taken_whole_or_not_at_all() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    rules = {"tenant": {"acme": {"tenant_messages_per_minute": 3}}}
    async with TurnTake(store, rules=rules, agent=silent, clock=clock) as turns:
        await turns.accept(arrivals("m1", "m2", tenant="acme"))
        with pytest.raises(RateLimited, match="This tenant sent more than tenant_messages_per_minute = 3"):
            await turns.accept([*arrivals("m3", tenant="acme", name="bob"), *arrivals("m4", tenant="acme")])
        assert await store.find(ConversationKey.of("bob", tenant="acme")) is None
        await turns.accept(arrivals("m3", tenant="acme", name="bob"))
        await turns.accept(arrivals("m1", "m2", "m3", "m4"))


async def test_bytes_are_those_that_are_stored() -> None:
    clock = VirtualClock()
    async with TurnTake(MemoryStore(clock), rules={"bytes_per_minute": 1_000}, agent=silent, clock=clock) as turns:
        await turns.accept(arrivals("m1", text="x" * 900))
        with pytest.raises(RateLimited, match="bytes_per_minute"):
            await turns.accept(arrivals("m2", text="x" * 200))
        await turns.accept(arrivals("m3", text="x"))


async def test_bytes_of_a_tenant_are_counted_where_nobody_elses_are() -> None:
    clock = VirtualClock()
    rules = {"tenant": {"acme": {"tenant_bytes_per_minute": 1_000}}}
    async with TurnTake(MemoryStore(clock), rules=rules, agent=silent, clock=clock) as turns:
        await turns.accept(arrivals("m1", text="x" * 900, tenant="acme"))
        with pytest.raises(RateLimited, match="tenant_bytes_per_minute"):
            await turns.accept(arrivals("m2", text="x" * 200, tenant="acme", name="bob"))


async def test_a_limit_counts_for_the_agent_it_is_set_for_from_the_moment_it_is_set() -> None:
    clock = VirtualClock()
    async with TurnTake(MemoryStore(clock), agent=silent, clock=clock) as turns:
        await turns.accept([Arrival(ANN, Message("m1", "hi"), "sales")])
        await turns.rule_keeper.change({RuleScope("agent", "sales"): Said({"messages_per_minute": 1})}, "ann")
        await turns.accept([Arrival(ANN, Message("m2", "hi"), "sales")])
        with pytest.raises(RateLimited, match="messages_per_minute = 1"):
            await turns.accept([Arrival(ANN, Message("m3", "hi"), "sales")])
        await turns.accept([Arrival(ANN, Message("m3", "hi"), "support")])


async def test_each_message_that_a_platform_reports_is_taken_or_rejected() -> None:
    """A small one is taken after a large one was not; one without words is none."""
    clock, postbox, seen = VirtualClock(), Postbox(), Rejected()
    rules = {"bytes_per_minute": 1_000, "limit_text": "Slowly.\n@de Langsam."}
    turns = TurnTake(MemoryStore(clock), rules=rules, agent=silent, outbound=postbox, clock=clock, observers=[seen])
    async with turns:
        texts = ["x" * 700, "y" * 700, " " * 700, "z"]
        reported = [Arrival(ANN, Message(f"m{number}", text)) for number, text in enumerate(texts)]
        receipts = await turns.accept_reported(reported)
        assert [receipt.status for receipt in receipts] == ["buffered", "rejected", "ignored", "buffered"]
        assert [receipt.reason for receipt in receipts] == ["silence", "bytes_per_minute", None, "typing"]
        german = Message("m5", "y" * 700, metadata={"language": "de-AT"})
        await clock.advance(60_000)
        await turns.accept_reported([Arrival(ANN, Message("m4", "x" * 900)), Arrival(ANN, german)])
        await clock.advance(10)
    assert seen.ids == ["m1", "m5"]
    assert postbox.sent == ["Slowly.", "Langsam."]


async def test_a_tenant_over_its_limit_has_messages_of_all_its_conversations_rejected() -> None:
    """Each person is told; other tenants are not limited by it."""
    clock, postbox = VirtualClock(), Postbox()
    rules = {"tenant": {"acme": {"tenant_messages_per_minute": 1, "limit_text": "Slowly."}}}
    async with TurnTake(MemoryStore(clock), rules=rules, agent=silent, outbound=postbox, clock=clock) as turns:
        reported = [*arrivals("m1", "m2", "m3", tenant="acme"), *arrivals("m4", tenant="acme", name="bob")]
        receipts = await turns.accept_reported([*reported, *arrivals("m5")])
        await clock.advance(10)
    assert [receipt.status for receipt in receipts] == ["buffered", "rejected", "rejected", "rejected", "buffered"]
    assert {receipt.reason for receipt in receipts[1:4]} == {"tenant_messages_per_minute"}
    assert postbox.sent == ["Slowly.", "Slowly."]


async def test_where_words_count_too_a_stop_word_is_heard_and_the_rest_is_rejected() -> None:
    clock = VirtualClock()
    rules = {"messages_per_minute": 1, "stop_words": ["stop"]}
    async with TurnTake(MemoryStore(clock), rules=rules, agent=silent, clock=clock) as turns:
        reported = [Arrival(ANN, Message(text, text)) for text in ("hi", "hello?", "stop")]
        receipts = await turns.accept_reported(reported)
    assert [receipt.status for receipt in receipts] == ["buffered", "rejected", "buffered"]
    assert receipts[-1].reason == "stop word"
