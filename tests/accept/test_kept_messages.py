"""What a platform reports is acknowledged and found again, while the agent works, when it fails, and if others stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from msgspec.structs import replace

from harness.platforms.word_channel import WordChannel, body, said
from harness.servers import MADE_KEY, OURS, Later, calling
from turntake import GiveUp, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.deliver.handler import Handler
from turntake.deliver.sink import Sink
from turntake.platforms.channel import ChatEvent
from turntake.testing.clock import VirtualClock

AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0, busy_text="")
CHANNELS = {("knock", ""): WordChannel({"word": "sesame"})}


@asynccontextmanager
async def served(rules: Rules, agent: Sink | Handler, clock: VirtualClock) -> AsyncIterator[httpx2.AsyncClient]:
    turns = TurnTake(MemoryStore(clock), rules=rules, agent=agent, clock=clock)
    async with turns, calling(turns.asgi(channels=CHANNELS, made_key=MADE_KEY)) as client:
        client.headers.update(OURS)
        yield client


async def report(client: httpx2.AsyncClient, *events: ChatEvent) -> int:
    response = await client.post("/webhooks/knock", content=body(*events), headers={"x-word": "sesame"})
    return response.status_code


async def found(client: httpx2.AsyncClient, key: str) -> dict[str, str]:
    """Each text that a conversation has, and where: it waits, or its turn has this status."""
    path = f"/v1/conversations/{key}"
    waiting = {each["text"]: "waiting" for each in (await client.get(path)).json()["messages"]}
    turns = (await client.get(f"{path}/turns")).json()["turns"]
    return {each["text"]: turn["status"] for turn in turns for each in turn["messages"]} | waiting


@pytest.mark.parametrize(
    ("on_busy", "where"),
    [
        ("queue", {"one": "answering", "two": "waiting"}),
        ("steer", {"one": "answering", "two": "waiting"}),
        ("reject", {"one": "answering", "two": "rejected"}),
        ("interrupt", {"one": "waiting", "two": "waiting"}),
    ],
)
async def test_a_message_that_comes_while_the_agent_works_is_found_again(on_busy: str, where: dict[str, str]) -> None:
    """Whatever the rules say is done with it: to acknowledge a message and then drop it would lose it."""
    clock = VirtualClock()
    async with served(replace(AT_ONCE, on_busy=on_busy), Later(), clock) as client:
        assert await report(client, said("one")) == 200
        await clock.advance(10)
        assert await report(client, said("two")) == 200
        assert await found(client, "default:knock:us:ann") == where


async def test_a_message_that_cannot_be_answered_is_acknowledged_once_and_kept() -> None:
    """A platform that hears of our own troubles sends the same again for days, or stops sending at all."""
    clock = VirtualClock()

    async def answer(turn: Turn) -> None:
        raise GiveUp("I do not know this person.")

    async with served(AT_ONCE, answer, clock) as client:
        for _ in range(2):
            assert await report(client, said("hi")) == 200
            await clock.advance(60_000)
            (letter,) = (await client.get("/v1/dead-letters")).json()["deadLetters"]
            assert letter["messageCount"] == 1
        assert await found(client, "default:knock:us:ann") == {"hi": "dead"}


async def test_in_a_group_nobody_stops_what_somebody_else_said() -> None:
    """Each person has a buffer and an answer of their own."""
    clock = VirtualClock()
    rules = replace(AT_ONCE, stop_words=("stop",))
    async with served(rules, Later(), clock) as client:
        group = {"conversation": "friends", "is_group": True}
        assert await report(client, said("hi", **group)) == 200
        await clock.advance(10)
        assert await report(client, said("more", **group), said("stop", sender="bob", **group)) == 200
        await clock.advance(10)
        assert await found(client, "default:knock:us:friends:@ann") == {"hi": "answering", "more": "waiting"}
        assert await found(client, "default:knock:us:friends:@bob") == {"stop": "answering"}
