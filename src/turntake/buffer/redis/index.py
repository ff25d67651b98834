"""Reads a sorted set in the order of (score, member), a page at a time.

The entry that the last page ended with may have moved or gone since, so a page does not start at a rank that was
remembered but at that entry's score, and leaves out what it passed already.
"""

from turntake.buffer.engine.backend import PAGE
from turntake.buffer.redis.shards import Entry
from turntake.buffer.redis.url import Client


async def page(client: Client, name: str, limit: int, after: Entry | None, *, desc: bool = False) -> list[Entry]:
    """Up to `limit` entries that come strictly after one, which need not be there any more."""
    entries: list[Entry] = []
    start = 0 if after is None else await _rank_after(client, name, after, desc)
    while len(entries) < limit:
        part = await client.zrange(name, start, start + PAGE - 1, desc=desc, withscores=True)
        read = [(float(score), member.decode()) for member, score in part]
        entries += [entry for entry in read if after is None or (entry < after if desc else entry > after)]
        if len(part) < PAGE:
            break
        start += PAGE
    return entries[:limit]


async def _rank_after(client: Client, name: str, entry: Entry, desc: bool) -> int:
    """Where to start: behind the entry if it is still where it was, else with the first of its score."""
    score, member = entry
    if await client.zscore(name, member) == score:
        rank = await (client.zrevrank if desc else client.zrank)(name, member)
        return int(rank or 0) + 1
    edge = f"({score}"
    return int(await (client.zcount(name, edge, "+inf") if desc else client.zcount(name, "-inf", edge)))
