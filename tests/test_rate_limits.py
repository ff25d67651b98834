"""Limits on what people send: whoever sends too much is told so, before anything is acknowledged."""

import pytest

from turntake.arrival import Arrival
from turntake.buffer.memory import MemoryStore
from turntake.deliver.turn import Turn
from turntake.errors import RateLimited
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.service import TurnTake
from turntake.testing.clock import VirtualClock


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
