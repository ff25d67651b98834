"""Limits on what people send, checked before a message is acknowledged. `rules/rates.py` decides; this keeps count."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from turntake.arrival import Arrival
from turntake.clock import Clock
from turntake.errors import RateLimited
from turntake.rules.rates import RATE_RULES, Bucket, Buckets, RateRefusal, buckets_of
from turntake.rules.scopes import RuleBook


class RateLimits:
    """Those of one process. Where no rule sets any, a call costs a comparison."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets = Buckets()
        self._book: RuleBook | None = None
        self._is_limited = False

    def check(self, arrivals: Sequence[Arrival], book: RuleBook) -> None:
        """Counts all arrivals, or none and raises RateLimited."""
        refusal = self._take(arrivals, book) if self._has_limits(book) else None
        if refusal is not None:
            raise RateLimited(refusal.bucket.of, refusal.bucket.rule, refusal.bucket.per_minute, refusal.after_ms)

    def over(self, arrivals: Sequence[Arrival], book: RuleBook) -> Iterator[str]:
        """Counts each arrival, or says the rule whose limit it is over; "" for one that was counted."""
        has_limits = self._has_limits(book)
        for arrival in arrivals:
            refusal = self._take((arrival,), book) if has_limits else None
            yield "" if refusal is None else refusal.bucket.rule

    def _has_limits(self, book: RuleBook) -> bool:
        if book is not self._book:
            self._book, self._is_limited = book, book.names(*RATE_RULES)
        return self._is_limited

    def _take(self, arrivals: Sequence[Arrival], book: RuleBook) -> RateRefusal | None:
        demands: Counter[Bucket] = Counter()
        for arrival in arrivals:
            rules = book.of(arrival.key).of(arrival.agent)
            has_bytes = rules.bytes_per_minute or rules.tenant_bytes_per_minute
            size = len(msgspec.msgpack.encode(arrival.message)) if has_bytes else 0
            for bucket, amount in buckets_of(arrival.key, rules, size):
                demands[bucket] += amount
        return self._buckets.take(demands, self._clock.now())
