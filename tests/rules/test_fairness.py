"""Who is claimed first when more is due than there are slots for."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules import fairness
from turntake.rules.fairness import (
    AGEING_MS,
    AHEAD_TURNS,
    DueTurn,
    FairOrder,
    Lane,
    Lanes,
    Shares,
    in_lanes,
    most_of_one,
)
from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleBook, RuleScope


def due(name: str, due_at: int = 0, tenant: str = "default") -> DueTurn:
    key = ConversationKey.of(name, tenant=tenant)
    return DueTurn(due_at, str(key), key)


def lanes(*turns: tuple[Lane, DueTurn]) -> Lanes:
    return in_lanes((turn, lane) for lane, turn in turns)


def crowd(lane: Lane, count: int, due_at: int = 0) -> list[tuple[Lane, DueTurn]]:
    return [(lane, due(f"c{number:04}", due_at + number, lane.tenant)) for number in range(count)]


def names(turns: Iterable[DueTurn]) -> list[str]:
    return [turn.key.conversation for turn in turns]


def served(shares: Shares, waiting: list[tuple[Lane, DueTurn]], turns: int) -> list[Lane]:
    """The lanes of those that are claimed, one after the other, while nothing else falls due."""
    taken = []
    for _ in range(turns):
        (first,) = shares.first(lanes(*waiting), 1)
        (lane,) = (lane for lane, turn in waiting if turn is first)
        waiting.remove((lane, first))
        shares.took(lane)
        taken.append(lane)
    return taken


def test_one_tenant_goes_by_priority_and_then_by_deadline() -> None:
    low, usual, high = Lane("default", -1), Lane("default"), Lane("default", 1)
    waiting = lanes((usual, due("b", 2)), (usual, due("a", 1)), (low, due("c", 0)), (high, due("d", 3)))
    assert names(Shares().first(waiting, 10)) == ["d", "a", "b", "c"]
    assert names(Shares().first(waiting, 2)) == ["d", "a"]


def test_whoever_waited_long_goes_before_a_higher_priority() -> None:
    """A step of priority is worth ten seconds, so that nobody waits for ever."""
    waiting = lanes((Lane("default", 1), due("vip", AGEING_MS + 1)), (Lane("default"), due("old", 0)))
    assert names(Shares().first(waiting, 1)) == ["old"]
    waiting = lanes((Lane("default", 1), due("vip", AGEING_MS - 1)), (Lane("default"), due("old", 0)))
    assert names(Shares().first(waiting, 1)) == ["vip"]


def test_a_tie_goes_by_the_key() -> None:
    assert names(Shares().first(lanes((Lane("default"), due("b")), (Lane("default"), due("a"))), 2)) == ["a", "b"]


def test_a_quiet_tenant_is_next_however_much_another_has_due() -> None:
    noisy, quiet = Lane("noisy"), Lane("quiet")
    waiting = lanes(*crowd(noisy, 300), (quiet, due("q", 10_000, "quiet")))
    assert "q" in names(Shares().first(waiting, 2))


def test_shares_are_kept() -> None:
    """Who has three times the share gets three turns for one."""
    small, large = Lane("small"), Lane("large", share=300)
    taken = Counter(served(Shares(), [*crowd(small, 100), *crowd(large, 100)], 80))
    assert taken == {small: 20, large: 60}


def test_who_had_nothing_due_has_saved_nothing() -> None:
    """A tenant that comes back after an hour shares from then on; it does not get the hour."""
    shares, noisy, back = Shares(), Lane("noisy"), Lane("back")
    served(shares, crowd(noisy, 200), 200)
    taken = Counter(served(shares, [*crowd(noisy, 50), *crowd(back, 50)], 40))
    assert abs(taken[noisy] - taken[back]) <= 2


def test_a_high_priority_goes_before_other_tenants_until_its_own_is_ahead_of_its_share() -> None:
    vip, usual = Lane("pushy", 1), Lane("other")
    taken = served(Shares(), [*crowd(vip, 100), *crowd(usual, 100)], 60)
    assert taken[:AHEAD_TURNS] == [vip] * AHEAD_TURNS
    assert 25 <= taken.count(usual) <= 30, "in the long run both get the same"


def test_of_a_tenant_without_room_nothing_is_picked() -> None:
    waiting = lanes(*crowd(Lane("noisy"), 5), (Lane("quiet"), due("q", 99, "quiet")))
    assert names(Shares().first(waiting, 10, {"noisy": 0})) == ["q"]
    assert names(Shares().first(waiting, 10, {"noisy": 1, "quiet": 5})) == ["c0000", "q"]
    assert names(Shares().first(waiting, 10, {"noisy": -1})) == ["q"]


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes up tenants costs no memory."""
    monkeypatch.setattr(fairness, "MOST_COUNTS", 50)
    shares = Shares()
    for number in range(120):
        shares.first({Lane(f"t{number}"): [due("a")]}, 1)
        shares.took(Lane(f"t{number}"))
        assert len(shares._counts) <= 50


def test_one_tenant_leaves_a_tenth_of_the_slots_to_others() -> None:
    assert [most_of_one(slots) for slots in (1, 9, 10, 100)] == [1, 9, 9, 90]
    order = FairOrder(lambda key, agent: Rules(), slots=10)
    waiting = lanes(*crowd(Lane("noisy"), 20))
    assert len(order.first(waiting, 10)) == 10
    assert order.is_short
    order.has_tenants = True
    assert len(order.first(waiting, 10)) == 9
    assert len(order.first(lanes(*crowd(Lane("noisy", most=50), 20)), 10)) == 9, "whatever its own rule allows"
    order.running = {"noisy": 9}
    assert order.first(waiting, 1) == []
    assert order.is_short


def test_an_order_reads_the_rules() -> None:
    """Of the tenant, and of the agent where that is known."""
    layers = {
        RuleScope("tenant", "acme"): Layer({"share": 50, "tenant_turns": 3, "priority": -1}),
        RuleScope("agent", "sales"): Layer({"priority": 4}),
    }
    order = FairOrder(RuleBook(layers).rules_for, slots=10)
    key = ConversationKey.of("ann", tenant="acme")
    assert order.lane_of(key, "") == Lane("acme", -1, 50, 3)
    assert order.lane_of(key, "sales") == Lane("acme", 4, 50, 3)
    assert order.lane_of(ConversationKey.of("ann"), "") == Lane("default")
    assert len(order.first(in_lanes((turn, Lane("acme", -1, 50, 3)) for _, turn in crowd(Lane("acme"), 9)), 9)) == 3


@given(
    turns=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-10, 10), st.integers(0, 100_000)), max_size=30),
    limit=st.integers(1, 40),
)
def test_nobody_is_picked_twice_and_room_is_used(turns: list[tuple[str, int, int]], limit: int) -> None:
    waiting = [
        (Lane(tenant, priority), due(f"c{number}", due_at, tenant))
        for number, (tenant, priority, due_at) in enumerate(turns)
    ]
    picked = Shares().first(lanes(*waiting), limit)
    assert len(picked) == len(set(picked)) == min(limit, len(turns))
    assert set(picked) <= {turn for _, turn in waiting}


@given(
    loads=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 12), min_size=2),
    shares=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 1_000)),
)
def test_while_all_have_something_due_nobody_is_more_than_a_turn_off_its_share(
    loads: dict[str, int], shares: dict[str, int]
) -> None:
    """For every tenant, whatever the others send: what it got over its share is within one turn of what others got."""
    counts, order = Counter[str](), Shares()
    waiting = [turn for tenant, load in loads.items() for turn in crowd(Lane(tenant, 0, shares.get(tenant, 100)), load)]
    while len({lane.tenant for lane, _ in waiting}) == len(loads):
        counts[served(order, waiting, 1)[0].tenant] += 1
        rates = [(counts[tenant], shares.get(tenant, 100)) for tenant in loads]
        least_busy = min((count + 1) / share for count, share in rates)
        assert all((count - 1) / share <= least_busy * 1.01 for count, share in rates)
