"""How much a conversation or a tenant may send: token buckets, of which each is one number.

How this works: a limit of 60 a minute is a bucket of 60 tokens, to which one returns every second. Of a bucket only the
instant is kept at which it will be full again (the generic cell rate algorithm): what is taken moves that on, and if it
lies more than a minute ahead, there is not enough in it. Then nothing is taken, and the answer says when there will be.

What is larger than a whole bucket is taken from a full one, and the bucket is empty for as much longer.

Each process keeps its own buckets: to share them would be a write to one row for every message of a tenant, before it
is even known whether the message is taken.
"""

import hashlib
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Literal, NamedTuple

from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules

MINUTE_MS = 60_000
# About 25 MB. The one that was used longest ago is forgotten first, and with it how empty it was.
MOST_BUCKETS = 100_000
LONGEST_NAME = 64  # as most keys are; a longer one may have thousands of characters, and its hash stands for it

RATE_RULES = ("messages_per_minute", "bytes_per_minute", "tenant_messages_per_minute", "tenant_bytes_per_minute")
"""The rules that set limits."""


class Bucket(NamedTuple):
    """What is limited, to so much per minute: messages or bytes of a conversation or of a tenant, or how often callers
    from an address are refused."""

    of: Literal["conversation", "tenant", "address"]
    name: str
    unit: Literal["messages", "bytes", "refusals"]
    per_minute: int

    @property
    def rule(self) -> str:
        """The rule that limits messages or bytes to that."""
        return f"{'tenant_' if self.of == 'tenant' else ''}{self.unit}_per_minute"


BucketId = tuple[str, str, str]
"""What is kept of a bucket: its parts without its limit, which may change while it fills, and of a long name a hash."""

Demands = Mapping[Bucket, int]
"""How much is to be taken of each."""


class RateRefusal(NamedTuple):
    """There was not enough in a bucket; there will be after so long."""

    bucket: Bucket
    after_ms: int


def buckets_of(key: ConversationKey, rules: Rules, size: int) -> Iterator[tuple[Bucket, int]]:
    """What a message of `size` bytes takes of each bucket that limits it."""
    if rules.messages_per_minute:
        yield Bucket("conversation", str(key), "messages", rules.messages_per_minute), 1
    if rules.bytes_per_minute:
        yield Bucket("conversation", str(key), "bytes", rules.bytes_per_minute), size
    if rules.tenant_messages_per_minute:
        yield Bucket("tenant", key.tenant, "messages", rules.tenant_messages_per_minute), 1
    if rules.tenant_bytes_per_minute:
        yield Bucket("tenant", key.tenant, "bytes", rules.tenant_bytes_per_minute), size


class Buckets:
    """Of one process. Pure but for what it keeps."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._full_at: dict[BucketId, float] = {}

    def take(self, demands: Demands, now: int) -> RateRefusal | None:
        """Takes all of it, or nothing: then the answer is the bucket that will have enough last."""
        taken: dict[BucketId, float] = {}
        worst: RateRefusal | None = None
        for bucket, amount in demands.items():
            id: BucketId = bucket.of, _short(bucket.name), bucket.unit
            full_at = max(now, self._full_at.get(id, now))
            lasts_ms = amount * MINUTE_MS / bucket.per_minute
            # A whole bucket is enough for anything.
            wait_ms = full_at - now if lasts_ms > MINUTE_MS else full_at + lasts_ms - now - MINUTE_MS
            if wait_ms > 0 and (worst is None or wait_ms > worst.after_ms):
                worst = RateRefusal(bucket, ceil(wait_ms))
            taken[id] = full_at + lasts_ms
        if worst is None:
            for used, full_at in taken.items():
                self._full_at.pop(used, None)  # so that it comes last: a dict keeps the order in which its keys came
                self._full_at[used] = full_at
            while len(self._full_at) > self._most:
                del self._full_at[next(iter(self._full_at))]
        return worst


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"hash:{hashlib.blake2s(name.encode()).hexdigest()}"
