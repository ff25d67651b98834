"""The operator's side of stores: looks one over, mends its index, finishes its upgrade. Errors become findings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from turntake.buffer.open import Examined, Maintained, open_store, store_kind
from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.finding import Check
from turntake.operate.options.settings import without_password


async def examine(url: str, clock: Clock) -> AsyncIterator[Check]:
    """Whether the store would open, and how safe it is."""
    try:
        kind = store_kind(url)
        if issubclass(kind, Examined):
            async for check in kind.examine(url, clock):
                yield check
        else:
            for check in _unexamined(url):
                yield check
    except Exception as error:
        yield _failed("store", error)


async def rebuild(url: str, clock: Clock) -> Check:
    """Restores the index of deadlines from the conversations alone."""

    async def mend(store: Maintained) -> str:
        mended = await store.rebuild()
        return f"{mended:,} entries of the index of deadlines mended" if mended else "every deadline was in its place"

    return await _asked(url, clock, "rebuild", mend)


async def finish_upgrade(url: str, clock: Clock) -> Check:
    """Runs the migrations that had to wait for the last process of the old version."""

    async def finish(store: Maintained) -> str:
        return ", ".join(await store.finish_upgrade()) or "nothing was left to do"

    return await _asked(url, clock, "upgrade", finish)


async def _asked(url: str, clock: Clock, about: str, act: Callable[[Maintained], Awaitable[str]]) -> Check:
    try:
        store = open_store(url, clock)
        if not isinstance(store, Maintained):
            return Check("ok", about, f"{url.partition(':')[0]}:// needs none; there is nothing to do")
        async with store:
            return Check("ok", about, await act(store))
    except Exception as error:
        return _failed(about, error)


def _failed(about: str, error: Exception) -> Check:
    """Our own errors say what to do. A library's may quote the URL with its password, so only its kind is named."""
    return Check("fail", about, str(error) if isinstance(error, TurntakeError) else f"failed: {type(error).__name__}")


def _unexamined(url: str) -> list[Check]:
    if url.startswith("memory:"):
        says = "memory:// forgets everything when the server stops; use sqlite:/// to keep it"
        return [Check("warn", "store", says)]
    if url.startswith("sqlite:///"):
        from turntake.buffer.sqlite.examine import sqlite_checks

        return list(sqlite_checks(Path(url.removeprefix("sqlite:///")).absolute()))
    return [Check("ok", "store", f"{without_password(url)} (not opened)")]
