"""The operator's side of stores: examines one, repairs its index, finishes its upgrade. Errors become findings."""

from collections.abc import AsyncIterator, Awaitable, Callable

from turntake.buffer.open import Clocked, Examined, Maintained, open_store, store_kind
from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.finding import Finding
from turntake.operate.options.settings import without_password


async def examine(url: str, clock: Clock) -> AsyncIterator[Finding]:
    """Whether the store would open, and how safe it is."""
    try:
        kind = store_kind(url)
        if issubclass(kind, Examined):
            async for finding in kind.examine(url, clock):
                yield finding
        else:
            yield Finding("ok", "store", f"{without_password(url)} (not opened)")
    except Exception as error:
        yield _failed("store", error)


async def rebuild(url: str, clock: Clock) -> Finding:
    """Restores the index of deadlines from the conversations alone."""

    async def mend(store: Maintained) -> str:
        mended = await store.rebuild()
        return f"{mended:,} entries of the index of deadlines mended" if mended else "every deadline was in its place"

    return await _maintain(url, clock, "rebuild", mend)


async def reset_clock(url: str, clock: Clock) -> Finding:
    """Sets the store's time, and every deadline with it, back to what the clock says."""
    try:
        store = open_store(url, clock)
        if not isinstance(store, Clocked):
            return Finding("ok", "clock", f"{url.partition(':')[0]}:// notes no time; there is nothing to do")
        async with store:
            ahead_ms = await store.reset_clock()
        text = f"the store's time was {ahead_ms:,} ms ahead and is set back, and every deadline with it"
        return Finding("ok", "clock", text if ahead_ms else "the store's time was right")
    except Exception as error:
        return _failed("clock", error)


async def finish_upgrade(url: str, clock: Clock) -> Finding:
    """Runs the migrations that had to wait for the last process of the old version."""

    async def finish(store: Maintained) -> str:
        return ", ".join(await store.finish_upgrade()) or "nothing was left to do"

    return await _maintain(url, clock, "upgrade", finish)


async def _maintain(url: str, clock: Clock, subject: str, act: Callable[[Maintained], Awaitable[str]]) -> Finding:
    try:
        store = open_store(url, clock)
        if not isinstance(store, Maintained):
            return Finding("ok", subject, f"{url.partition(':')[0]}:// needs none; there is nothing to do")
        async with store:
            return Finding("ok", subject, await act(store))
    except Exception as error:
        return _failed(subject, error)


def _failed(subject: str, error: Exception) -> Finding:
    """Our own errors say what to do. A library's may quote the URL with its password, so only its kind is named."""
    return Finding(
        "fail", subject, str(error) if isinstance(error, TurntakeError) else f"failed: {type(error).__name__}"
    )
