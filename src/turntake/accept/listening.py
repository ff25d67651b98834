"""Keeps listeners running for as long as messages are accepted here."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from turntake.accept.intake import Intake
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.platforms.channel import ChatEvent
from turntake.platforms.listener import Listener
from turntake.tasks import end

log = logging.getLogger("turntake")

AGAIN_MS = 5_000
"""Between tries to listen again: a platform that restarts is back within seconds, and must not be hammered."""

Listeners = Mapping[tuple[str, str], Listener]
"""By the channel's name and the account's, which is "" for the only or first one."""


@asynccontextmanager
async def listening(listeners: Listeners, intake: Intake, clock: Clock) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(_keep(listener, channel, account, intake, clock), name=f"turntake-{channel}")
        for (channel, account), listener in listeners.items()
    ]
    try:
        yield
    finally:
        await end(tasks)


async def _keep(listener: Listener, channel: str, account: str, intake: Intake, clock: Clock) -> None:
    facts = {"action": "listen", "channel": channel, "account": account}

    async def on_events(events: Sequence[ChatEvent]) -> None:
        await intake.take(channel, account, events)

    while True:
        try:
            await listener.listen(on_events)
        except ConfigurationError as error:
            log.error("Nobody listens to a channel; correct it and start again", extra=facts | {"reason": str(error)})
            return
        except Exception as error:
            log.warning("A channel was lost; listening again soon", extra=facts | {"error": type(error).__name__})
        await clock.sleep(AGAIN_MS)
