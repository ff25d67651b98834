"""Walking a sorted set by (score, member), a page at a time, from a place that may have moved meanwhile."""

from turntake.buffer.engine.backend import PAGE
from turntake.buffer.redis.url import Client

Entry = tuple[float, str]


async def page(client: Client, name: str, limit: int, after: Entry | None, *, desc: bool = False) -> list[Entry]:
    """Up to `limit` entries strictly beyond a place."""
    found: list[Entry] = []
    start = 0 if after is None else await _rank_beyond(client, name, after, desc)
    while len(found) < limit:
        part = await client.zrange(name, start, start + PAGE - 1, desc=desc, withscores=True)
        entries = [(float(score), member.decode()) for member, score in part]
        found += [one for one in entries if after is None or (one < after if desc else one > after)]
        if len(part) < PAGE:
            break
        start += PAGE
    return found[:limit]


async def _rank_beyond(client: Client, name: str, place: Entry, desc: bool) -> int:
    """Where to start: right behind the place if it is still there, else with the first of its score."""
    score, member = place
    if await client.zscore(name, member) == score:
        rank = await (client.zrevrank if desc else client.zrank)(name, member)
        return int(rank or 0) + 1
    edge = f"({score}"
    return int(await (client.zcount(name, edge, "+inf") if desc else client.zcount(name, "-inf", edge)))
