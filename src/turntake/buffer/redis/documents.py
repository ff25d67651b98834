"""Documents as hashes, one key each."""

import asyncio
import secrets
from collections.abc import Sequence

from turntake.buffer.documents import Document, Documents
from turntake.buffer.redis.keys import document
from turntake.buffer.redis.scripts import SWAP_DOCUMENT
from turntake.buffer.redis.url import Client, RedisOptions, unavailable_on_error
from turntake.errors import StoreUnavailable


class RedisDocuments(Documents):
    """A command may be sent twice, so each swap has an id by which it is known again."""

    def __init__(self, client: Client, options: RedisOptions) -> None:
        self._client = client
        self._options = options

    async def read(self, name: str) -> Document | None:
        with unavailable_on_error:
            version, body = await self._client.hmget(self._key(name), "v", "b")
        return None if version is None else Document(int(version), body)

    async def versions(self, names: Sequence[str]) -> list[int]:
        with unavailable_on_error:
            found = await asyncio.gather(*(self._client.hget(self._key(name), "v") for name in names))
        return [int(version or 0) for version in found]

    async def swap(self, name: str, version: int, body: bytes) -> bool:
        keys = [self._key(name)]
        args = (version, secrets.token_hex(8), body)
        with unavailable_on_error:
            if not self._options.wait:
                return bool(await SWAP_DOCUMENT(self._client, keys, args))
            wait, wait_ms = self._options.wait, self._options.wait_ms
            is_ours, is_safe = await SWAP_DOCUMENT.replicated(self._client, keys, args, wait, wait_ms)
        if is_ours and not is_safe:
            raise StoreUnavailable("Too few replicas had the change in time; look whether it stands, or make it again.")
        return bool(is_ours)

    def _key(self, name: str) -> str:
        return document(self._options.prefix, name)
