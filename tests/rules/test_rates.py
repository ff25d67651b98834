"""Token buckets: how much may be sent, and when there is enough again."""

from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.key import ConversationKey
from turntake.rules.rates import MINUTE_MS, Bucket, Buckets, RateRefusal, buckets_of
from turntake.rules.rules import Rules

ANN = ConversationKey.of("ann", tenant="acme")
MESSAGES = Bucket("conversation", "ann", "messages", 60)
BYTES = Bucket("tenant", "acme", "bytes", 1_000)


def test_a_minutes_worth_may_come_at_once_and_then_one_at_a_time() -> None:
    buckets = Buckets()
    assert [buckets.take({MESSAGES: 1}, 0) for _ in range(60)] == [None] * 60
    assert buckets.take({MESSAGES: 1}, 0) == RateRefusal(MESSAGES, 1_000)
    assert buckets.take({MESSAGES: 1}, 999) == RateRefusal(MESSAGES, 1)
    assert buckets.take({MESSAGES: 1}, 1_000) is None
    assert buckets.take({MESSAGES: 1}, 1_000) == RateRefusal(MESSAGES, 1_000)


def test_an_hour_of_silence_saves_no_more_than_a_bucket() -> None:
    buckets, later = Buckets(), 60 * MINUTE_MS
    assert buckets.take({MESSAGES: 1}, 0) is None
    assert [buckets.take({MESSAGES: 1}, later) for _ in range(60)] == [None] * 60
    assert buckets.take({MESSAGES: 1}, later) == RateRefusal(MESSAGES, 1_000)


def test_what_is_refused_takes_nothing() -> None:
    """Neither of its own bucket nor of another that had enough: whoever is told to wait is not set back by that."""
    buckets = Buckets()
    assert buckets.take({BYTES: 900}, 0) is None
    assert buckets.take({MESSAGES: 1, BYTES: 200}, 0) == RateRefusal(BYTES, 6_000)
    assert [buckets.take({MESSAGES: 1}, 0) for _ in range(60)] == [None] * 60
    assert buckets.take({BYTES: 100}, 0) is None


def test_the_longest_wait_is_told() -> None:
    buckets = Buckets()
    assert buckets.take({MESSAGES: 60, BYTES: 1_000}, 0) is None
    assert buckets.take({MESSAGES: 1, BYTES: 500}, 0) == RateRefusal(BYTES, 30_000)


def test_what_is_larger_than_a_bucket_is_taken_from_a_full_one() -> None:
    """A message that could never be taken would be sent for ever."""
    buckets = Buckets()
    assert buckets.take({BYTES: 3_000}, 0) is None
    assert buckets.take({BYTES: 1}, 2 * MINUTE_MS) == RateRefusal(BYTES, 60)
    assert buckets.take({BYTES: 3_000}, 3 * MINUTE_MS - 1) == RateRefusal(BYTES, 1)
    assert buckets.take({BYTES: 3_000}, 3 * MINUTE_MS) is None


def test_a_limit_that_is_changed_counts_at_once() -> None:
    """What was taken before counts on; a higher limit gives more room, and not a new bucket."""
    buckets = Buckets()
    assert buckets.take({MESSAGES: 60}, 0) is None
    assert buckets.take({MESSAGES._replace(per_minute=600): 1}, 0) == RateRefusal(
        MESSAGES._replace(per_minute=600), 100
    )


def test_buckets_are_bounded() -> None:
    buckets = Buckets(most=2)
    for name in ("a", "b", "a", "c"):
        assert buckets.take({MESSAGES._replace(name=name): 30}, 0) is None
    assert buckets.take({MESSAGES._replace(name="a"): 1}, 0) is not None
    assert buckets.take({MESSAGES._replace(name="b"): 60}, 0) is None, "used longest ago, it was forgotten"


def test_long_names_take_no_more_room_than_usual_ones() -> None:
    """A key may have four thousand characters, and a client makes up as many as there are buckets. Names that begin or
    end alike have buckets of their own all the same."""
    buckets = Buckets()
    names = [f"{start}{'x' * 4_000}{end}" for start in "ab" for end in "ab"]
    for name in names:
        assert buckets.take({MESSAGES._replace(name=name): 60}, 0) is None
    for name in names:
        assert buckets.take({MESSAGES._replace(name=name): 1}, 0) is not None
    assert max(len(part) for id in buckets._full_at for part in id) <= 100


def test_a_message_is_counted_where_a_rule_says_so() -> None:
    assert list(buckets_of(ANN, Rules(), 100)) == []
    rules = Rules(messages_per_minute=1, bytes_per_minute=2, tenant_messages_per_minute=3, tenant_bytes_per_minute=4)
    found = dict(buckets_of(ANN, rules, 100))
    assert {(bucket.rule, bucket.name): amount for bucket, amount in found.items()} == {
        ("messages_per_minute", str(ANN)): 1,
        ("bytes_per_minute", str(ANN)): 100,
        ("tenant_messages_per_minute", "acme"): 1,
        ("tenant_bytes_per_minute", "acme"): 100,
    }
    assert all(getattr(rules, bucket.rule) == bucket.per_minute for bucket in found)


@given(pauses=st.lists(st.integers(0, 5_000), max_size=200), per_minute=st.integers(1, 200))
def test_nobody_gets_more_than_a_bucket_and_what_returned_to_it(pauses: list[int], per_minute: int) -> None:
    """And whoever waits as long as it was told is taken."""
    buckets, now = Buckets(), 0
    bucket = MESSAGES._replace(per_minute=per_minute)
    for taken, pause_ms in enumerate(pauses, 1):
        now += pause_ms
        refusal = buckets.take({bucket: 1}, now)
        if refusal is not None:
            now += refusal.after_ms
            assert buckets.take({bucket: 1}, now) is None
        assert taken <= per_minute * (1 + now / MINUTE_MS) + 1e-6
