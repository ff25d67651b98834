"""People who write to a store while something happens to it, for tests of any store."""

import asyncio

from harness.databases import Server
from turntake import Rules
from turntake.buffer.store import Store
from turntake.errors import StoreUnavailable
from turntake.rules.key import ConversationKey
from turntake.rules.records import Appended
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, say

ROOMY = Rules(capacity=9_999, max_messages=9_999)


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number}")


async def everything_ran() -> None:
    """Returns once whatever can go on without waiting for anybody has done so."""
    await VirtualClock().advance(0)


class Tally:
    """Ids in the order in which they were noted, and a way to wait for more of them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._grown = asyncio.Event()

    def note(self, id: str) -> None:
        self.ids.append(id)
        self._grown.set()

    async def more(self, count: int) -> None:
        """Returns once so many more were noted."""
        wanted = len(self.ids) + count
        while len(self.ids) < wanted:
            self._grown.clear()
            await self._grown.wait()


async def again(
    store: Store, message_id: str, key: ConversationKey = ANN, rules: Rules = ROOMY, refused: Tally | None = None
) -> Appended:
    """Sent until it is taken, as a platform does; before each new try the others have their turn."""
    while True:
        try:
            return await say(store, message_id, key=key, rules=rules)
        except StoreUnavailable:
            if refused is not None:
                refused.note(message_id)
            await everything_ran()


class Writers:
    """Eight writers to four conversations of a store, until they are told to stop; each repeats what is not taken."""

    def __init__(self, store: Store) -> None:
        self.acknowledged = Tally()
        self.refused = Tally()
        self._store = store
        self._is_over = False
        self._writing = asyncio.gather(*map(self._write, range(8)))

    async def stop(self) -> None:
        self._is_over = True
        await self._writing

    async def _write(self, writer: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            await again(self._store, f"{writer}-{number}", key(writer % 4), refused=self.refused)
            self.acknowledged.note(f"{writer}-{number}")


async def written_while_killed(server: Server, store: Store) -> list[str]:
    """What was acknowledged while the server was killed and started again, twice, in the middle of writes."""
    writers = Writers(store)
    for _ in range(2):
        await writers.acknowledged.more(100)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    await writers.acknowledged.more(20)
    await writers.stop()
    return writers.acknowledged.ids
