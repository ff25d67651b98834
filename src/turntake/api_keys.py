"""The API keys of an installation, as this process knows them.

How this works: all keys are one document in the store, with the secret that completion tokens and sealed cursors are
made with. A process reads it when it starts and looks once a second whether it changed, so that a key that was made or
revoked anywhere counts everywhere within two seconds, and to check one costs a hash and no call to the store.

While the document could never be read, nobody can say who may come in: then nobody does but the holders of keys that
come from elsewhere, such as TURNTAKE_API_KEYS.
"""

import secrets
from collections.abc import Callable, Iterable

import msgspec

from turntake.buffer.document_watch import DocumentWatch
from turntake.buffer.documents import Document
from turntake.buffer.store import Store
from turntake.errors import StoreUnavailable
from turntake.rules.api_keys import KEY_BYTES, ApiKey, Caller, KeyBook, new_key
from turntake.rules.tokens import SECRET_BYTES, TOKEN_PREFIX, completion_token, open_cursor, seal_cursor, turn_of_token

DOCUMENT = "keys"
ROUNDS = 20  # whoever makes a key is one of a few people: to lose this often means that something else is wrong

_TOKEN_PREFIX = TOKEN_PREFIX.encode()
_CROWDED = "Too many change the API keys at once; try again."


class ApiKeys:
    """Finds out who calls, makes keys and revokes them. Before `open`, nothing is known."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._book = KeyBook()
        self._callers: dict[bytes, Caller] = {}
        self._ids: frozenset[str] = frozenset()
        self._is_known = False
        self.is_needed = False
        """Whether a key was ever made: from then on nobody is served without one, also when all are revoked."""

    def open(self, store: Store, watch: DocumentWatch) -> None:
        """From the next look of `watch` on they are known. The first process of an installation makes the secret."""
        self._store, self._watch = store, watch
        watch.follow(DOCUMENT, self._learn, lambda: _encode(KeyBook(secrets.token_bytes(SECRET_BYTES))))

    def close(self) -> None:
        """Its store is closed."""
        self._store, self._is_known = None, False

    @property
    def is_unreadable(self) -> bool:
        """Whether the store could not be asked since `open`."""
        return self._store is not None and not self._is_known

    async def refresh(self) -> None:
        """Knows what other processes changed since the last look. Raises StoreUnavailable."""
        await self._present()

    def caller(self, digest: bytes) -> Caller | None:
        """Who sends a key with this hash."""
        return self._callers.get(digest)

    def caller_with_token(self, sent: bytes) -> Caller | None:
        """Who sends the completion token of a turn."""
        if not sent.startswith(_TOKEN_PREFIX):
            return None
        turn_id = turn_of_token(self._book.secret, sent)
        return Caller("completion token", frozenset({"turns:complete"}), turn_id=turn_id) if turn_id else None

    def is_in_force(self, caller: Caller) -> bool:
        """Whether the key of a caller who came in earlier still counts."""
        return not caller.key_id or caller.key_id in self._ids

    def token_for(self, turn_id: str) -> str:
        """The token with which the agent of this turn can complete it; empty while the secret is not known."""
        return completion_token(self._book.secret, turn_id) if self._book.secret else ""

    def seal(self, caller: Caller, cursor: str) -> str:
        """The cursor as this caller gets it: one who sees some tenants only cannot read it."""
        is_plain = caller.tenants is None or not cursor
        return cursor if is_plain else seal_cursor(self._book.secret, caller.tenants or (), cursor)

    def unseal(self, caller: Caller, cursor: str) -> str:
        """The cursor that `seal` was given. Raises ValueError."""
        is_plain = caller.tenants is None or not cursor
        return cursor if is_plain else open_cursor(self._book.secret, caller.tenants or (), cursor)

    def list(self, caller: Caller) -> list[ApiKey]:
        """Those that the caller may know of, the latest first."""
        return [key for key in reversed(self._book.keys) if caller.sees_key(key)]

    async def make(
        self, caller: Caller, name: str, scopes: Iterable[str], tenants: Iterable[str] | None = None
    ) -> tuple[ApiKey, str]:
        """A new key, and what its holder sends, which nobody can find out later.

        Raises ValueError for one that cannot be, and PermissionError for one that may do more than the caller.
        """
        now = self._known_store().clock.now()
        key, written = new_key(name, scopes, tenants, secrets.token_bytes(KEY_BYTES), now)
        if lacking := caller.lacks(key):
            raise PermissionError(f"A key makes no key that may do more than itself, and this one lacks {lacking}.")
        await self._change(caller, lambda book: book.with_key(key, caller))
        return key, written

    async def revoke(self, caller: Caller, key_id: str) -> ApiKey | None:
        """The key, which counts no longer; None if there is none that the caller may know of. Raises PermissionError if
        the caller's own was revoked meanwhile."""
        await self.refresh()
        known = self._book.find(key_id)
        if known is None or not caller.sees_key(known):
            return None
        now = self._known_store().clock.now()
        await self._change(caller, lambda book: book.revoke(key_id, now))
        return self._book.find(key_id)

    async def _change(self, caller: Caller, change: Callable[[KeyBook], KeyBook]) -> None:
        for _ in range(ROUNDS):
            version, book = await self._present()
            # The body of its request may have taken seconds to arrive, on purpose.
            if not self.is_in_force(caller):
                raise PermissionError("This API key was revoked a moment ago.")
            after = change(book)
            if await self._known_store().documents.swap(DOCUMENT, version, _encode(after)):
                return self._use(after)
        raise StoreUnavailable(_CROWDED)

    async def _present(self) -> tuple[int, KeyBook]:
        self._known_store()
        document = await self._watch.read(DOCUMENT)
        if document is None:
            raise StoreUnavailable("The API keys are gone from the store; try again.")
        return document.version, _decode(document.body)

    def _learn(self, document: Document) -> None:
        self._use(_decode(document.body))

    def _use(self, book: KeyBook) -> None:
        self._book = book
        self._callers = book.callers()
        self._ids = frozenset(caller.key_id for caller in self._callers.values())
        self._is_known = True
        self.is_needed = self.is_needed or bool(book.keys)

    def _known_store(self) -> Store:
        if self._store is None:
            raise StoreUnavailable("TurnTake is not running, so there are no API keys yet.")
        return self._store


async def keys_in(store: Store) -> ApiKeys:
    """The keys of a store that nothing runs on here, as they are now. Raises StoreUnavailable."""
    keys, watch = ApiKeys(), DocumentWatch(store)
    keys.open(store, watch)
    await watch.look()
    if keys.is_unreadable:
        raise StoreUnavailable(f"The document `{DOCUMENT}` in the store, which holds the API keys, cannot be read.")
    return keys


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KeyBook).decode
