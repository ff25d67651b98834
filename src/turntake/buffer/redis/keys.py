"""The names of everything a shard holds. All names of a shard have the same hash tag, so a cluster keeps them together.

Releases that run side by side share these names and fields: they may get company, but keep their meaning.

turntake:meta                   how many shards there are, and the format
turntake:workers                workers by when they last said that they live
turntake:doc:<name>             what the installation shares: v its version, b its body, w the call that wrote it
turntake:{s3}:due               every conversation by its one deadline; idle ones at the end
turntake:{s3}:closed            closed turns by the time they closed
turntake:{s3}:letters           dead letters by the same
turntake:{s3}:ids               conversations with ids of forgotten messages, by when the oldest one's turn closed
turntake:{s3}:counts            messages ever added, the latest time seen, and d<process>.<n>: the latest calls of a
                                process, each as the time, its number and which of its drafts were taken
turntake:{s3}:c:<key>           a conversation: s its version, first open number and next number, b its body,
                                m<seq> a message, i<id> an id it holds: '' or, once its message is forgotten, when
                                its turn closed, w for which process it is kept, and till when; nothing else in it
                                begins with m or i
turntake:{s3}:h:<key>           a conversation's turns by their first message
turntake:{s3}:t:<turn>          a turn: k its conversation, c how it closed, l set while it is a dead letter
"""

from turntake.rules.conversation import Closed, SealedTurn
from turntake.rules.key import ConversationKey

IDLE = float("inf")
"""The score of a conversation without a deadline: idle ones stay in the index `due`, behind all others."""
IDLE_WRITTEN = "+inf"
"""The same as a script takes it."""
MEMBER_DIGITS = 12  # up to a million million messages in one conversation


class Shard:
    """One part of the data."""

    def __init__(self, prefix: str, number: int) -> None:
        self.number = number
        self._tag = f"{prefix}:{{s{number}}}:"
        self.due = f"{self._tag}due"
        self.closed = f"{self._tag}closed"
        self.letters = f"{self._tag}letters"
        self.ids = f"{self._tag}ids"
        self.counts = f"{self._tag}counts"

    def conversation(self, key: ConversationKey | str) -> str:
        return f"{self._tag}c:{key}"

    def turns(self, key: ConversationKey | str) -> str:
        return f"{self._tag}h:{key}"

    def turn(self, turn_id: str) -> str:
        return f"{self._tag}t:{turn_id}"


def document(prefix: str, name: str) -> str:
    """Of no shard: in a cluster it lies wherever its name does."""
    return f"{prefix}:doc:{name}"


def shard_hash_of(turn_id: str) -> int | None:
    """The hash of a turn's conversation, with which the turn's id begins; None if this is not the id of a turn.

    Ids come from URLs too, so they are not remembered.
    """
    try:
        return int(turn_id.removeprefix("turn_")[:4], 16)
    except ValueError:
        return None


def member(turn: Closed | SealedTurn) -> str:
    """A turn in its conversation's index: of those with the same first message, the longest sorts last. What it absorbs
    does not change its place."""
    return place_of(turn.first_tail) + turn.id


def place_of(tail: int) -> str:
    """The number of a turn's last message, written so that numbers sort by their size, those below 0 too."""
    return f"{tail:0{MEMBER_DIGITS}}" if tail >= 0 else f"-{10 ** (MEMBER_DIGITS - 1) + tail:0{MEMBER_DIGITS - 1}}"
