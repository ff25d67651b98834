"""The rules of this process: those of its settings, and those that anybody sets for all processes while they run.

How this works: the live rules are one document of the store. Every process looks once a second whether it has changed,
and makes a new book of it and its own settings. Whoever changes it also tells the conversations that wait: each is
touched, so that its deadline is what the new rules say. That is done at once, for those who are about to fall due, and
again when all processes know of the change, for what one of them still buffered by the old rules. Then the document
notes that all have been told. If the process ends before that, another one goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from turntake.buffer.document_watch import LOOK_EVERY_MS, DocumentWatch
from turntake.buffer.documents import Document
from turntake.buffer.store import Query, Store
from turntake.errors import StoreUnavailable
from turntake.rules import touching
from turntake.rules.conversation import Conversation, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.live import LiveRules, Said, Tenants, Wanted, changed, check, is_among, refuse_unsound, rolled_back
from turntake.rules.scopes import Layers, RuleBook, RuleScope

DOCUMENT = "rules"
ROUNDS = 10  # somebody else was quicker so often in a row: then there are more than people who change rules
SEEN_BY_ALL_MS = 2 * LOOK_EVERY_MS
TELLING_MS = 30_000  # a page takes milliseconds; whoever was silent for that long is gone
PAGE = 500
AT_ONCE = 50  # so many touches share a write; more would only keep messages waiting

Tell = Callable[[ConversationKey], Awaitable[object]]
"""Has a conversation go by the present rules."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LiveRules).decode


class RuleKeeper:
    """`book` is what counts now."""

    def __init__(self, settings: Layers) -> None:
        self.settings = settings
        self.live = LiveRules()
        self.book = RuleBook(settings)
        self._wake = asyncio.Event()
        self._telling = self._told_once = 0

    def open(self, store: Store, watch: DocumentWatch) -> None:
        """From the first look of `watch` on the live rules are known."""
        self._store, self._watch = store, watch
        self._telling = self._told_once = 0
        self._use(LiveRules())
        watch.follow(DOCUMENT, self._learn)

    def _learn(self, document: Document) -> None:
        self._use(_read(document))

    def _use(self, live: LiveRules) -> None:
        self.book = RuleBook(self.settings, live.by_scope)
        self.live = live
        if live.told < live.version:
            self._wake.set()

    async def refresh(self) -> None:
        """Learns of changes that other processes made a moment ago. Raises StoreUnavailable."""
        await self._watch.read(DOCUMENT)

    async def change(self, wanted: Wanted, author: str, tenants: Tenants = None) -> LiveRules:
        """Sets layers, or takes them away where there is None. Raises ValueError if that is impossible, and
        PermissionError for limits of `tenants`, if the author is for these alone."""
        now = self._store.clock.now()
        return await self._commit(lambda live: changed(live, wanted, author, now, tenants=tenants), tenants)

    async def amend(
        self,
        scope: RuleScope,
        values: Mapping[str, object],
        preset: str | None,
        author: str,
        tenants: Tenants = None,
    ) -> LiveRules:
        """Sets single rules of a layer, or takes them away where there is None; the rest of it stays, also what others
        set at this moment. `preset` None leaves the preset. Raises as `change` does."""
        now = self._store.clock.now()

        def amended(live: LiveRules) -> LiveRules:
            present = live.get(scope)
            said = (Said() if present is None else present.said).amended(values, preset)
            return changed(live, {scope: said}, author, now, tenants=tenants)

        return await self._commit(amended, tenants)

    async def roll_back(self, version: int, author: str) -> LiveRules:
        """The layers of an earlier version, as a new one. Raises ValueError if it is not known any more."""
        now = self._store.clock.now()
        return await self._commit(lambda live: rolled_back(live, version, author, now))

    async def _commit(self, change: Callable[[LiveRules], LiveRules], tenants: Tenants = None) -> LiveRules:
        def checked(live: LiveRules) -> LiveRules:
            after = change(live)
            if after is live:
                return live
            if tenants is not None:
                refuse_unsound(live, self.settings)
            check(after, self.settings, tenants)
            return replace(after, telling_until=self._store.clock.now() + TELLING_MS)

        live, is_changed = await self._swap(checked)
        if is_changed:
            self._telling = live.version
        return live

    async def _swap(self, change: Callable[[LiveRules], LiveRules]) -> tuple[LiveRules, bool]:
        """The rules after the change, and whether there was anything to change."""
        for _ in range(ROUNDS):
            document = await self._watch.read(DOCUMENT)
            live = LiveRules() if document is None else _read(document)
            after = change(live)
            if after is live:
                return live, False
            if await self._store.documents.swap(DOCUMENT, 0 if document is None else document.version, _encode(after)):
                self._use(after)
                return after, True
        raise StoreUnavailable("Too many change the rules at once; try again.")

    async def keep_telling(self, tell: Tell) -> None:
        """Tells those who wait of changes, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            with suppress(StoreUnavailable):
                await self.tell(tell)
            if self.live.told < self.live.version:
                await self._store.clock.sleep(LOOK_EVERY_MS)
                self._wake.set()

    async def tell(self, tell: Tell) -> None:
        """Does what is to be done now, if it is for this process to do."""
        if self.live.told >= self.live.version or not await self._is_ours():
            return
        live = self.live
        if self._told_once < live.version:
            await self._walk(live.untold, tell)
            self._told_once = live.version
        if self._store.clock.now() >= live.changed_at + SEEN_BY_ALL_MS:
            await self._walk(live.untold, tell)
            await self._swap(lambda present: replace(present, told=max(present.told, live.version)))

    async def _is_ours(self) -> bool:
        """Whoever made the change tells of it. If nothing was heard of that process for long, somebody else does."""
        if self._telling == self.live.version:
            return True
        now = self._store.clock.now()

        def taken_over(live: LiveRules) -> LiveRules:
            is_free = live.told < live.version and live.telling_until <= now
            return replace(live, telling_until=now + TELLING_MS) if is_free else live

        if self.live.telling_until > now:
            return False
        live, is_ours = await self._swap(taken_over)
        self._telling = live.version if is_ours else self._telling
        return is_ours

    async def _walk(self, scopes: Collection[RuleScope], tell: Tell) -> None:
        async for page in self._waiting(scopes):
            for start in range(0, len(page), AT_ONCE):
                await asyncio.gather(*map(tell, page[start : start + AT_ONCE]))
            until = self._store.clock.now() + TELLING_MS
            if until > self.live.telling_until + TELLING_MS // 2:
                await self._swap(lambda live, until=until: replace(live, telling_until=until))  # type: ignore[misc]

    async def _waiting(self, scopes: Collection[RuleScope]) -> AsyncIterator[list[ConversationKey]]:
        """The conversations of these scopes that the present rules change, those that are due first first."""
        if all(scope.kind == "conversation" for scope in scopes):
            yield [ConversationKey.parse(scope.id) for scope in scopes]
            return
        cursor = ""
        while True:
            page = await self._store.history.conversations(Query(limit=PAGE, cursor=cursor))
            yield [
                key
                for key, conversation in page.items
                if is_among(scopes, key, conversation.agent) and self._would_move(key, conversation)
            ]
            if not page.cursor or (page.items and page.items[-1][1].due_at is None):  # idle ones come last
                return
            cursor = page.cursor

    def _would_move(self, key: ConversationKey, conversation: Conversation) -> bool:
        if conversation.buffer is None:
            return False
        told = touching.touch(conversation, key, Touch("rules"), self.book.of(key), self._store.clock.now())
        return told.conversation != conversation


def _read(document: Document) -> LiveRules:
    try:
        return _decode(document.body)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(
            f"The document `{DOCUMENT}` in the store, which holds the live rules: {error}."
        ) from None
