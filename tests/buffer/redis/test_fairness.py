"""A process that is near and one that is far write to one conversation: both get their turn."""

import asyncio

from harness.databases import Valkey
from harness.proxy import Proxy
from harness.writing import ROOMY
from turntake.buffer.redis.backend import RedisStore
from turntake.clock import SystemClock
from turntake.testing.store_contract import ANN, say

FAR_MS = 10
MESSAGES = 5


async def test_whoever_is_far_is_not_refused_for_ever(server: Valkey, proxy: Proxy, url: str) -> None:
    """The near one writes without a pause, many times in each of the other's round trips: without the row being kept
    for the far one, every draft of it would be of a row that has changed meanwhile."""
    far_url = url.replace(str(server.port), str(proxy.port))
    async with RedisStore.open(url, SystemClock()) as near, RedisStore.open(far_url, SystemClock()) as far:
        await say(near, "first", rules=ROOMY)
        await say(far, "second", rules=ROOMY)
        proxy.delay(FAR_MS)
        is_over = False
        written = 0

        async def write() -> None:
            nonlocal written
            while not is_over:
                written += 1
                await say(near, f"near{written}", rules=ROOMY)

        writing = asyncio.create_task(write())
        async with asyncio.timeout(20):
            for number in range(MESSAGES):
                assert (await say(far, f"far{number}", rules=ROOMY)).status == "buffered"
        is_over = True
        await writing
        proxy.heal()
        assert written > MESSAGES
        found = await near.find(ANN)
        assert found is not None
        assert found.conversation.waiting == 2 + MESSAGES + written
