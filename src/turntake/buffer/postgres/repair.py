"""Makes the search columns right again from the bodies. Their indexes the server keeps right itself."""

import logging

import msgspec

from turntake.buffer.engine.backend import PAGE
from turntake.buffer.engine.draft import row_of
from turntake.buffer.postgres.pool import Pool
from turntake.buffer.postgres.search_columns import SearchColumns, arrays
from turntake.rules.key import ConversationKey

log = logging.getLogger("turntake")


async def repair(pool: Pool, queries: dict[str, bytes]) -> int:
    """All rows, a page at a time; returns how many were wrong. A row written meanwhile is left to its writer."""
    repaired, after = 0, ""
    while page := await pool.fetch(queries["search_columns"], (after, PAGE)):
        wrong = [columns for row in page if (columns := _corrected(*row))]
        if wrong:
            repaired += len(await pool.fetch(queries["repair"], arrays(wrong)))
        after = page[-1][0]
    return repaired


def _corrected(
    key: str, version: int, state: str, due_at: int | None, open_from: int, body: bytes
) -> SearchColumns | None:
    """The columns as they should be; None if they are so, or if the body cannot be read."""
    try:
        right = SearchColumns.of(ConversationKey.parse(key), row_of(version, body))
    except (ValueError, msgspec.MsgspecError):
        log.error("A conversation cannot be read", extra={"action": "rebuild", "conversation": key})
        return None
    return None if right == (key, version, state, due_at, open_from) else right
