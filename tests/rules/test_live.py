"""Rules that are set while the service runs: who set them, what they were before, and back again."""

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.key import ConversationKey
from turntake.rules.live import (
    AUTHOR_LENGTH,
    CHANGES_KEPT,
    MOST_BYTES,
    MOST_LAYERS_OF_TENANT,
    LiveRules,
    Said,
    Wanted,
    changed,
    check,
    is_among,
    rolled_back,
)
from turntake.rules.live import MOST_LAYERS as MOST
from turntake.rules.scopes import DEFAULT, Layer, RuleScope

ACME, SALES = RuleScope("tenant", "acme"), RuleScope("agent", "sales")
ANN = ConversationKey.of("ann", tenant="acme", channel="whatsapp")


def said(**values: Any) -> Said:
    return Said(values)


def after(*changes: Wanted) -> LiveRules:
    live = LiveRules()
    for number, wanted in enumerate(changes):
        live = changed(live, wanted, f"author {number}", number)
    return live


def test_a_layer_knows_its_version_its_author_and_its_time() -> None:
    live = after({ACME: said(silence_ms=1)}, {SALES: said(silence_ms=2)})
    acme = live.get(ACME)
    assert acme is not None
    assert (acme.version, acme.author, acme.at, acme.said) == (1, "author 0", 0, said(silence_ms=1))
    assert live.version == 2
    assert live.by_scope == {ACME: Layer({"silence_ms": 1}), SALES: Layer({"silence_ms": 2})}


def test_an_author_has_a_name_of_a_bounded_length() -> None:
    assert changed(LiveRules(), {ACME: said(silence_ms=1)}, "x" * 500, 0).changes[0].author == "x" * AUTHOR_LENGTH


def test_setting_what_is_set_already_is_no_change() -> None:
    live = after({ACME: said(silence_ms=1)})
    assert changed(live, {ACME: said(silence_ms=1), SALES: None}, "somebody else", 9) is live


def test_one_change_may_be_about_several_scopes() -> None:
    live = after({ACME: said(silence_ms=1)}, {ACME: None, SALES: said(silence_ms=2)})
    assert live.by_scope == {SALES: Layer({"silence_ms": 2})}
    assert [(edit.scope, edit.before, edit.after) for edit in live.changes[-1].edits] == [
        (ACME, said(silence_ms=1), None),
        (SALES, None, said(silence_ms=2)),
    ]


def test_going_back_is_a_new_version_that_says_so() -> None:
    live = after({ACME: said(silence_ms=1)}, {ACME: said(silence_ms=2)}, {SALES: said(silence_ms=3)})
    back = rolled_back(live, 1, "boss", 50)
    assert back.by_scope == {ACME: Layer({"silence_ms": 1})}
    assert (back.version, back.changes[-1].restored, back.changes[-1].author) == (4, 1, "boss")
    assert rolled_back(back, 3, "boss", 60).by_scope == live.by_scope
    assert rolled_back(back, 4, "boss", 60) is back
    assert rolled_back(back, 0, "boss", 60).by_scope == {}


def test_a_version_that_is_not_known_is_refused() -> None:
    live = after(*({ACME: said(silence_ms=number)} for number in range(1, CHANGES_KEPT + 6)))
    assert len(live.changes) == CHANGES_KEPT
    for version in (-1, 4, CHANGES_KEPT + 6):
        with pytest.raises(ValueError, match=f"there are 5 to {CHANGES_KEPT + 5}"):
            rolled_back(live, version, "boss", 0)
    assert rolled_back(live, 5, "boss", 0).by_scope == {ACME: Layer({"silence_ms": 5})}


SCOPES = st.sampled_from([DEFAULT, ACME, SALES, RuleScope("platform", "slack")])
WANTED = st.dictionaries(SCOPES, st.none() | st.integers(1, 3).map(lambda n: said(silence_ms=n)), min_size=1)


@hypothesis.settings(deadline=None)
@given(st.lists(WANTED, max_size=12), st.data())
def test_going_back_brings_every_earlier_version_back(wanted: list[Wanted], data: st.DataObject) -> None:
    """Whatever was changed in between."""
    live = LiveRules()
    known: dict[int, dict[RuleScope, Layer]] = {0: {}}
    for each in wanted:
        live = changed(live, each, "ann", 1)
        known[live.version] = live.by_scope
    version = data.draw(st.sampled_from(sorted(known)))
    back = rolled_back(live, version, "bob", 2)
    assert back.by_scope == known[version]
    assert msgspec.json.decode(msgspec.json.encode(back), type=LiveRules) == back


def test_a_rule_of_a_later_release_does_not_count_and_is_not_lost() -> None:
    """Its process may run beside this one."""
    live = LiveRules(layers=after({ACME: said(silence_ms=1, mood="calm")}).layers)
    assert live.by_scope == {ACME: Layer({"silence_ms": 1})}
    assert live.layers[0].said.values["mood"] == "calm"
    assert LiveRules(layers=after({ACME: Said({}, "later")}).layers).by_scope == {ACME: Layer()}


def test_what_is_impossible_is_refused() -> None:
    settings = {DEFAULT: Layer({"max_messages": 5})}
    with pytest.raises(ValueError, match="min_messages is above max_messages"):
        check(after({ACME: said(min_messages=9)}), settings)
    with pytest.raises(ValueError, match="mood: there is no such field"):
        check(after({ACME: said(mood="calm")}), settings)
    with pytest.raises(ValueError, match="mood: there is no such field"):
        check(after({ACME: said(silence_ms=1)}, {ACME: said(silence_ms=1, mood="calm")}), settings)
    many: Wanted = {RuleScope("tenant", f"t{number}"): said(silence_ms=1) for number in range(MOST + 1)}
    with pytest.raises(ValueError, match=f"There are {MOST} layers already"):
        check(after(many), settings)


def test_it_knows_who_has_not_been_told() -> None:
    live = after({ACME: said(silence_ms=1)}, {SALES: said(silence_ms=2)})
    assert live.untold == {ACME, SALES}
    assert msgspec.structs.replace(live, told=1).untold == {SALES}
    assert msgspec.structs.replace(live, told=2).untold == frozenset()
    assert msgspec.structs.replace(live, changes=live.changes[1:]).untold == {DEFAULT}, "changes are missing"


@pytest.mark.parametrize(
    ("scope", "is_one"),
    [
        (DEFAULT, True),
        (RuleScope("platform", "whatsapp"), True),
        (ACME, True),
        (SALES, True),
        (RuleScope("conversation", str(ANN)), True),
        (RuleScope("platform", "slack"), False),
        (RuleScope("agent", ""), False),
    ],
)
def test_a_scope_is_one_of_a_conversations(scope: RuleScope, is_one: bool) -> None:
    assert is_among({scope}, ANN, "sales") == is_one


def test_the_room_of_a_tenant_is_not_used_up_by_others() -> None:
    others = {RuleScope("tenant", f"t{number}"): said(silence_ms=1) for number in range(MOST_LAYERS_OF_TENANT)}
    check(after(others, {ACME: said(silence_ms=1)}), {}, {"acme"})
    own = {RuleScope("conversation", f"acme:generic:default:c{n}"): said(silence_ms=1) for n in range(len(others))}
    with pytest.raises(ValueError, match=f"There are {MOST_LAYERS_OF_TENANT} layers already"):
        check(after(own, {ACME: said(silence_ms=1)}), {}, {"acme"})


def test_layers_and_changes_take_no_more_room_than_there_is() -> None:
    """Every process reads all of it whenever anything changes. The latest change is kept, however long it is."""
    long = said(stop_words=tuple(f"{number:0100}" for number in range(1_000)))
    live = after({ACME: long})
    for number in range(20):
        live = changed(live, {ACME: said(silence_ms=number)}, "boss", 1)
        live = changed(live, {ACME: long}, "boss", 2)
        assert len(msgspec.json.encode(live.changes)) <= MOST_BYTES
    assert (live.changes[-1].version, len(live.changes)) == (41, 10)
    check(live, {})
    for number in range(11):
        live = changed(live, {RuleScope("tenant", f"tenant {number}"): long}, "boss", 3)
    with pytest.raises(ValueError, match="bytes"):
        check(live, {})
    everything = {RuleScope("tenant", f"other {number}"): long for number in range(20)}
    assert len(changed(live, everything, "boss", 4).changes) == 1
