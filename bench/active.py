"""What an append costs with few and with very many conversations: `python -m bench.active [how many…] [stores…]`.

How this works: so many people write one after the other in random order, again and again, and nobody answers them.
After a first message of each, CPU is measured, ours and the server's, for each further one. With more conversations
than a process remembers (`engine/row_cache.py`), each message costs a further question. The last column says how many
times the first row's cost that is.
"""

import asyncio
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

from bench.servers import STORES, Server
from turntake.buffer.open import open_store
from turntake.buffer.store import Store
from turntake.clock import SystemClock
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules

ACTIVE = (5_000, 200_000)
APPENDS = 100_000
# As many callers at once as keep the write queue full.
AT_ONCE = 200
RULES = Rules()


class Cost(NamedTuple):
    """CPU of one append in microseconds, and what the server carried out."""

    ours_us: float
    server_us: float
    commands: float

    @property
    def total_us(self) -> float:
        return self.ours_us + self.server_us


def arrival(person: int, number: int) -> Append:
    key = ConversationKey.of(f"49170{person:07}", channel="whatsapp", account="106540352242922")
    return Append(
        key, Message(f"wamid.{number:040}", "Where is my lamp?", sender=f"49170{person:07}", sent_at=1), RULES
    )


async def speak(store: Store, people: Sequence[int], numbers: Iterable[int]) -> None:
    pairs = list(zip(people, numbers, strict=False))
    for first in range(0, len(pairs), AT_ONCE):
        await asyncio.gather(*(store.append([arrival(*pair)]) for pair in pairs[first : first + AT_ONCE]))


async def measured(server: Server, active: int, appends: int) -> Cost:
    chance, people = random.Random(active), list(range(active))
    numbers = iter(range(2**40))
    async with open_store(server.url, SystemClock()) as store:
        await speak(store, people, numbers)
        spoken: list[int] = []
        while len(spoken) < appends:
            chance.shuffle(people)
            spoken += people
        cpu_s, ours_s, commands = server.cpu_s(), process_time(), server.commands() or 0
        await speak(store, spoken[:appends], numbers)
        ours_s, cpu_s, commands = process_time() - ours_s, server.cpu_s() - cpu_s, (server.commands() or 0) - commands
    return Cost(ours_s * 1e6 / appends, cpu_s * 1e6 / appends, commands / appends)


def main(arguments: Sequence[str]) -> None:
    numbers = [int(word) for word in arguments if word.isdecimal()] or ACTIVE
    names = [word for word in arguments if word in STORES] or ["redis"]
    titles = ("store", "active", "ours µs", "server µs", "commands", "times")
    print("{:<12}{:>10}{:>10}{:>11}{:>10}{:>8}".format(*titles))
    for name in names:
        first: Cost | None = None
        for active in numbers:
            with tempfile.TemporaryDirectory() as folder, STORES[name](Path(folder)) as server:
                cost = asyncio.run(measured(server, active, APPENDS))
            first = first or cost
            line = f"{name:<12}{active:>10}{cost.ours_us:>10.1f}{cost.server_us:>11.1f}{cost.commands:>10.2f}"
            print(f"{line}{cost.total_us / first.total_us:>8.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
