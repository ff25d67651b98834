"""What the documents of every store must do, by example; part of `StoreContract`."""

import asyncio

import pytest

from turntake.buffer.documents import Document
from turntake.buffer.store import Store
from turntake.testing.store_machine import OpenStore

NAME = "rules"
WRITERS = 5


async def add_one(store: Store) -> None:
    """Counts up what the document says, however many others do so at the same time."""
    while True:
        version, body = await store.documents.read(NAME) or (0, b"0")
        if await store.documents.swap(NAME, version, b"%d" % (int(body) + 1)):
            return


class DocumentsContract:
    """Uses the fixtures of the class that inherits from it."""

    is_durable: bool

    async def test_a_document_that_nobody_wrote_is_not_there(self, store: Store) -> None:
        """It has the version 0."""
        assert await store.documents.read(NAME) is None
        assert await store.documents.versions([NAME, "keys"]) == [0, 0]
        assert await store.documents.versions([]) == []

    @pytest.mark.parametrize("body", [b"", b"\x00\xff{}", b"x" * 500_000])
    async def test_a_document_is_kept_as_it_was_given(self, store: Store, body: bytes) -> None:
        """Any bytes, none, or many; each version replaces the one before."""
        assert await store.documents.swap(NAME, 0, b"first")
        assert await store.documents.swap(NAME, 1, body)
        assert await store.documents.read(NAME) == Document(2, body)
        assert await store.documents.versions(["keys", NAME]) == [0, 2]
        assert await store.documents.read("keys") is None

    async def test_a_document_is_swapped_only_for_the_version_that_was_read(self, store: Store) -> None:
        """Older and later versions are refused, and so is a first one if there is a document; nothing changes then."""
        assert not await store.documents.swap(NAME, 1, b"too early")
        assert await store.documents.read(NAME) is None
        assert await store.documents.swap(NAME, 0, b"one")
        assert await store.documents.swap(NAME, 1, b"two")
        for version in (0, 1, 3):
            assert not await store.documents.swap(NAME, version, b"two")
        assert await store.documents.read(NAME) == Document(2, b"two")

    async def test_of_those_who_swap_a_document_at_once_one_wins(self, store: Store, open_store: OpenStore) -> None:
        """Also in several processes, and also if all of them write the same."""
        if not self.is_durable:
            taken = [await store.documents.swap(NAME, 0, b"same") for _ in range(WRITERS)]
        else:
            async with open_store() as other:
                swaps = [each.documents.swap(NAME, 0, b"same") for each in (store, other) for _ in range(WRITERS)]
                taken = await asyncio.gather(*swaps)
        assert sum(taken) == 1
        assert await store.documents.versions([NAME]) == [1]

    async def test_no_change_of_a_document_is_lost_among_many(self, store: Store, open_store: OpenStore) -> None:
        """Whoever was not the first reads again, and changes what the other left."""
        if not self.is_durable:
            await asyncio.gather(*(add_one(store) for _ in range(WRITERS)))
            assert await store.documents.read(NAME) == Document(WRITERS, b"%d" % WRITERS)
            return
        async with open_store() as other:
            await asyncio.gather(*(add_one(each) for each in (store, other) for _ in range(WRITERS)))
            both = [await each.documents.read(NAME) for each in (store, other)]
        assert both == [Document(2 * WRITERS, b"%d" % (2 * WRITERS))] * 2

    async def test_documents_outlive_the_process(self, open_store: OpenStore) -> None:
        """They are there when the store is opened again."""
        if not self.is_durable:
            pytest.skip("this store is for one process's life")
        async with open_store() as store:
            await store.documents.swap(NAME, 0, b"kept")
        async with open_store() as store:
            assert await store.documents.read(NAME) == Document(1, b"kept")
