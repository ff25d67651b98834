"""The rows that this process wrote last, and what it does about those that it does not remember.

How this works: a conversation that talks again is decided on the row that is remembered here, without asking. The
latest rows are kept as objects. Many more are kept as their bytes after that, which take a third of the room and two
microseconds to read. Both are bounded, for all shards together, and what was not written for longest is forgotten
first. A row that is kept as bytes stays so when it is written again, but for one in eight: where far more conversations
talk than there are objects, to make and drop one with each message would cost more than reading the bytes does; where
few do, each is an object again soon. (Two generations of bytes, of which the older is dropped whole, would need no
order. But of 200,000 conversations that talk at random they had forgotten half when those talked again.)

Beyond that, nearly every row is unknown. Taking each for new would have most drafts refused and written a second time,
so while most unknown rows turn out to exist, they are read first, all of a batch in one call. While most of them are
new indeed, as after a campaign, that call would be wasted, and they are written at once.
"""

import struct
from collections import OrderedDict
from itertools import islice

import msgspec

from turntake.buffer.codec import decode_conversation
from turntake.buffer.engine.draft import Row
from turntake.rules.key import ConversationKey

# As objects a usual row takes 1 KB, so these take 10 MB; a long one is kept as bytes only.
ROWS_AS_OBJECTS = 10_000
LARGEST_OBJECT = 1_000
# Enough for 200,000 usual conversations, more than one process serves at a time.
MOST_BYTES = 96_000_000
# What an entry takes beside its bytes: a number, the head of a bytes object, and a place in a dict that changes.
ENTRY_BYTES = 190
# A part of the oldest is forgotten at once, since a dict finds its first entry by passing over all that were taken out.
FORGOTTEN_PART = 50
# One of so many rows that are kept as bytes becomes an object when it is written again.
PROMOTED = 8
# How much one unknown row says about the next: a change of habits is noticed after about ten.
LEARNING = 0.1

_VERSION = struct.Struct(">q")


class RowCache:
    """One for each process, shared by the write queues of all shards; `most_bytes` is the bound of those kept as bytes.

    A conversation is found by its hash there. If two ever have the same, one is decided on the other's row, whose
    version is another, and is refused with its own.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._rows: OrderedDict[ConversationKey, Row] = OrderedDict()
        # The bytes of those rows, which remain once they are no longer kept as objects.
        self._bodies: dict[ConversationKey, bytes] = {}
        self._most_bytes = most_bytes
        self._packed: dict[int, bytes] = {}  # a plain one: the garbage collector need not walk through it
        self._packed_bytes = 0
        self._kept_packed = 0
        self._share_known = 0.0

    @property
    def is_reading_first(self) -> bool:
        """Whether unknown rows are worth reading: most of the latest were there already."""
        return self._share_known > 0.5

    def get(self, key: ConversationKey) -> Row | None:
        row = self._rows.get(key)
        if row is not None or not self._most_bytes:
            return row
        packed = self._packed.get(hash(key))
        return None if packed is None else _unpacked(packed)

    def put(self, key: ConversationKey, row: Row, body: bytes) -> None:
        """The row that was written, with the bytes it was written as; without bytes, one that was there already."""
        if body and self._stays_packed(key):
            self._put_bytes(key, row, body)
            return
        self._bodies.pop(key, None)
        if len(body) > LARGEST_OBJECT:
            self._rows.pop(key, None)
            self._put_bytes(key, row, body)
            return
        if body:
            self._bodies[key] = body
        self._rows[key] = row
        self._rows.move_to_end(key)
        if len(self._rows) > ROWS_AS_OBJECTS:
            oldest, row = self._rows.popitem(last=False)
            self._put_bytes(oldest, row, self._bodies.pop(oldest, b""))

    def drop(self, key: ConversationKey) -> None:
        self._rows.pop(key, None)
        self._bodies.pop(key, None)
        packed = self._packed.pop(hash(key), None)
        if packed is not None:
            self._packed_bytes -= len(packed) + ENTRY_BYTES

    def learn(self, is_known: bool) -> None:
        """A row that was not remembered was there already, or was new."""
        self._share_known += LEARNING * (is_known - self._share_known)

    def _stays_packed(self, key: ConversationKey) -> bool:
        if key in self._rows or hash(key) not in self._packed:
            return False
        self._kept_packed += 1
        return self._kept_packed % PROMOTED > 0

    def _put_bytes(self, key: ConversationKey, row: Row, body: bytes) -> None:
        if not body or not self._most_bytes:
            return
        name, packed = hash(key), _VERSION.pack(row.version) + body
        # Taken out first, so that it comes last: a dict keeps the order in which its keys came.
        before = self._packed.pop(name, None)
        self._packed[name] = packed
        self._packed_bytes += len(packed) - len(before) if before else len(packed) + ENTRY_BYTES
        if self._packed_bytes > self._most_bytes:
            for oldest in list(islice(self._packed, 1 + len(self._packed) // FORGOTTEN_PART)):
                self._packed_bytes -= len(self._packed.pop(oldest)) + ENTRY_BYTES


def _unpacked(packed: bytes) -> Row | None:
    try:
        return Row(_VERSION.unpack_from(packed)[0], decode_conversation(packed[8:]))
    except msgspec.MsgspecError:
        return None
