"""Documents that must be there: the first process writes them, and all have the same."""

from functools import partial

from turntake.buffer.document_watch import DocumentWatch
from turntake.buffer.documents import Document
from turntake.buffer.memory import MemoryStore
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock


async def test_the_first_process_writes_a_document_that_must_be_there() -> None:
    """If it is gone, whoever looks next writes it anew. Others are written by those who have something to say."""
    store = MemoryStore(VirtualClock())
    told: list[tuple[int, bytes]] = []

    def note(number: int, document: Document) -> None:
        told.append((number, document.body))

    watches = [DocumentWatch(store) for _ in range(2)]
    for number, watch in enumerate(watches):
        watch.follow("keys", partial(note, number), partial(b"by %d".__mod__, number))
        watch.follow("rules", partial(note, number))
    for watch in (*watches, *watches):
        await watch.look()
    assert told == [(0, b"by 0"), (1, b"by 0")]
    assert await store.documents.read("rules") is None
    store.documents = type(store.documents)()
    await watches[1].look()
    assert told[2:] == [(1, b"by 1")]


async def test_a_document_that_was_gone_is_read_again_whatever_its_version() -> None:
    """A store that was emptied begins with the first version again, which is no reason to keep to what was there."""
    store = MemoryStore(VirtualClock())
    told: list[bytes] = []
    watch = DocumentWatch(store)
    watch.follow("rules", lambda document: told.append(document.body))
    await store.documents.swap("rules", 0, b"before")
    await watch.look()
    store.documents = type(store.documents)()
    await watch.look()
    await store.documents.swap("rules", 0, b"after")
    await watch.look()
    assert told == [b"before", b"after"]


async def test_a_document_of_an_earlier_version_counts_as_well() -> None:
    """As when a backup of the store is put back."""
    store = MemoryStore(VirtualClock())
    told: list[bytes] = []
    watch = DocumentWatch(store)
    watch.follow("rules", lambda document: told.append(document.body))
    for version, body in enumerate((b"one", b"two")):
        await store.documents.swap("rules", version, body)
    await watch.look()
    store.documents = type(store.documents)()
    await store.documents.swap("rules", 0, b"one")
    await watch.look()
    await watch.look()
    assert told == [b"two", b"one"]


async def test_a_document_that_cannot_be_used_keeps_no_other_from_being_read() -> None:
    store = MemoryStore(VirtualClock())
    told: list[bytes] = []
    watch = DocumentWatch(store)

    def refuse(document: Document) -> None:
        raise StoreUnavailable("It is damaged.")

    watch.follow("rules", refuse)
    watch.follow("keys", lambda document: told.append(document.body))
    for name in ("rules", "keys"):
        await store.documents.swap(name, 0, b"body")
    await watch.look()
    assert (told, watch.is_known) == ([b"body"], True)
