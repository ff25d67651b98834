"""What each thing that a store keeps takes in it, in bytes: `python -m bench.growth [how many] [stores…]`.

How this works: so many people write a message each, which waits, is answered, is forgotten but for its id, and is
forgotten whole; then as many become dead letters. After each step the store is made compact and asked how much it
holds. The same with more messages of each person tells what a further message takes in a conversation that is there
already. The clock is moved by hand, so that days take no time.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import psycopg

from bench.servers import STORES, Server
from turntake.buffer.open import open_store
from turntake.buffer.store import Store
from turntake.clock import DAY_MS
from turntake.rules.conversation import Answered, Dead, Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock

PEOPLE = 3_000  # enough that pages and tables which are only begun hardly show
FURTHER = 10
AT_ONCE = 100
LEASE_MS = 60_000
TEXT = "Good morning, I ordered a lamp on Monday and it has not arrived yet. Could you look where it is? Number 12345"
ANSWER = "Good morning! Your lamp left our warehouse yesterday and arrives tomorrow. I have sent you the tracking link."
STEPS = ("waiting", "answered", "only its id", "forgotten", "dead letter")


def arrival(person: int, number: int) -> Append:
    """As WhatsApp sends it: an id of 58 characters, and numbers for people. Each message is a turn of its own."""
    key = ConversationKey.of(f"49170{person:07}", channel="whatsapp", account="106540352242922")
    message = Message(
        f"wamid.HBgNNDkxNzAx{person:024}{number:04}Mjg4QUVBAA==", TEXT, sender=f"49170{person:07}", sent_at=1
    )
    return Append(key, message, Rules(enabled=False))


def compact_bytes(server: Server) -> int:
    """What the store holds once nothing in it is free space."""
    scheme = server.url.partition(":")[0]
    if scheme == "sqlite":
        connection = apsw.Connection(server.url.removeprefix("sqlite:///"))
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    elif scheme == "postgresql":
        with psycopg.connect(server.url, autocommit=True) as control:
            control.execute("VACUUM FULL")
    return server.stored_bytes()


async def speak(store: Store, people: int, each: int) -> None:
    for number in range(each):
        for first in range(0, people, AT_ONCE):
            await store.append([arrival(person, number) for person in range(first, min(people, first + AT_ONCE))])


async def settle_all(store: Store, settlement: Settlement) -> None:
    while claims := await store.claim(AT_ONCE, LEASE_MS):
        await asyncio.gather(*(store.settle(claim, settlement) for claim in claims))


async def forget_all(store: Store, before: int, ids_before: int) -> None:
    while await store.history.forget(before, ids_before):
        pass


async def steps(store: Store, clock: VirtualClock, people: int, each: int = 1) -> AsyncIterator[str]:
    """Leads the store through its steps; each is measured while it is the only one."""
    await speak(store, people, each)
    yield "waiting"
    await settle_all(store, Answered((ANSWER,)))
    yield "answered"
    start = clock.now()
    await clock.advance(DAY_MS)
    await forget_all(store, clock.now(), start)
    yield "only its id"
    await forget_all(store, clock.now(), clock.now())
    yield "forgotten"
    await speak(store, people, each)
    await settle_all(store, Dead("failed 3 times", "TimeoutError"))
    yield "dead letter"


async def measured(name: str, people: int, each: int) -> dict[str, float]:
    """Bytes for each person, by step."""
    with tempfile.TemporaryDirectory() as folder, STORES[name](Path(folder)) as server:
        clock = VirtualClock()
        async with open_store(server.url, clock):
            pass
        empty = compact_bytes(server)
        async with open_store(server.url, clock) as store:
            return {step: (compact_bytes(server) - empty) / people async for step in steps(store, clock, people, each)}


def main(arguments: Sequence[str]) -> None:
    people = next((int(word) for word in arguments if word.isdecimal()), PEOPLE)
    names = [word for word in arguments if word in STORES] or list(STORES)
    print(f"{'bytes':<28}" + "".join(f"{step:>14}" for step in STEPS))
    for name in names:
        first = asyncio.run(measured(name, people, 1))
        more = asyncio.run(measured(name, people, 1 + FURTHER))
        further = {step: (more[step] - first[step]) / FURTHER for step in STEPS}
        for what, found in (("first message", first), ("a further one", further)):
            print(f"{name + ', ' + what:<28}" + "".join(f"{found[step]:>14,.0f}" for step in STEPS), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
