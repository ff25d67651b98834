"""Documents that must be there: the first process writes them, and all have the same."""

from functools import partial

from turntake.buffer.document_watch import DocumentWatch
from turntake.buffer.documents import Document
from turntake.buffer.memory import MemoryStore
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
