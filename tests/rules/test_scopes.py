"""Rules in scopes: the most specific layer that names a rule decides, and contradictions are refused."""

from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules import scopes
from turntake.rules.key import ConversationKey
from turntake.rules.rules import PRESETS, Rules
from turntake.rules.scopes import DEFAULT, SCOPE_KINDS, Layer, Origin, RuleBook, RuleScope, layers_in, scope_of

ANN = ConversationKey.of("ann", tenant="acme", channel="whatsapp")
BOB = ConversationKey.of("bob", tenant="zeta", channel="slack")
SALES, ACME, WHATSAPP = RuleScope("agent", "sales"), RuleScope("tenant", "acme"), RuleScope("platform", "whatsapp")
OWN = RuleScope("conversation", str(ANN))


def book(**layers: dict[str, Any]) -> RuleBook:
    scopes = {"default": DEFAULT, "platform": WHATSAPP, "tenant": ACME, "agent": SALES, "conversation": OWN}
    return RuleBook({scopes[name]: Layer(values) for name, values in layers.items()})


def test_an_empty_book_has_the_defaults() -> None:
    assert RuleBook().rules_for(ANN, "sales") == Rules()
    assert RuleBook().explain(ANN)["silence_ms"] == Origin(1_000, DEFAULT, None)


def test_a_layer_overrides_only_what_it_names() -> None:
    ours = book(default={"silence_ms": 700, "capacity": 9}, tenant={"silence_ms": 2_000}, agent={"activity_ms": 1})
    assert ours.rules_for(ANN, "sales") == Rules(silence_ms=2_000, capacity=9, activity_ms=1)
    assert ours.rules_for(ANN, "support") == Rules(silence_ms=2_000, capacity=9)
    assert ours.rules_for(BOB) == Rules(silence_ms=700, capacity=9)


def test_a_preset_is_the_base_of_its_layer_and_leaves_alone_what_it_does_not_set() -> None:
    ours = RuleBook({DEFAULT: Layer({"capacity": 9}), ACME: Layer({"max_wait_ms": 6_000}, preset="quick-support")})
    assert ours.rules_for(ANN) == Rules(silence_ms=500, typing_inference_ms=500, max_wait_ms=6_000, capacity=9)
    assert ours.explain(ANN)["silence_ms"] == Origin(500, ACME, "settings")


def test_a_live_layer_counts_more_than_the_same_in_the_settings_and_less_than_a_more_specific_one() -> None:
    ours = RuleBook(
        {ACME: Layer({"silence_ms": 100, "capacity": 9}), SALES: Layer({"activity_ms": 7})},
        live={ACME: Layer({"silence_ms": 200, "activity_ms": 5})},
    )
    assert ours.rules_for(ANN, "sales") == Rules(silence_ms=200, capacity=9, activity_ms=7)
    explained = ours.explain(ANN, "sales")
    assert explained["silence_ms"] == Origin(200, ACME, "live")
    assert explained["capacity"] == Origin(9, ACME, "settings")
    assert explained["activity_ms"] == Origin(7, SALES, "settings")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"silence": 3}, "silence: there is no such field"),
        ({"silence_ms": "3"}, "silence_ms = '3': expected an integer of milliseconds"),
        ({"enabled": 1}, "expected true or false"),
    ],
)
def test_what_is_no_rule_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Layer(values)


def test_a_preset_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r'no preset "quick"; there are: complex-inquiry'):
        Layer(preset="quick")


@pytest.mark.parametrize(
    ("first", "second"), [("tenant", "agent"), ("default", "tenant"), ("platform", "conversation")]
)
def test_two_layers_that_contradict_each_other_are_refused_and_named(first: str, second: str) -> None:
    with pytest.raises(ValueError, match=r"min_messages is above max_messages.*So it would be for \[") as refusal:
        book(**{first: {"min_messages": 10}, second: {"max_messages": 5}})
    assert second in str(refusal.value)


@pytest.mark.parametrize("kind", ["platform", "agent", "conversation"])
def test_what_is_about_a_tenant_as_a_whole_is_set_for_tenants_or_for_all(kind: str) -> None:
    with pytest.raises(ValueError, match="share is about a tenant as a whole"):
        book(**{kind: {"share": 5}})
    assert book(default={"share": 5}, tenant={"share": 6}).rules_for(ANN).share == 6


def test_a_book_knows_what_each_scope_says_about_a_rule() -> None:
    """The live value, where there are two."""
    ours = RuleBook({DEFAULT: Layer({"capacity": 7}), ACME: Layer({"capacity": 8})}, {ACME: Layer({"capacity": 9})})
    assert ours.named("capacity") == {DEFAULT: 7, ACME: 9}


def test_layers_that_never_meet_may_contradict_each_other() -> None:
    other = RuleScope("tenant", "zeta")
    RuleBook({ACME: Layer({"min_messages": 10}), other: Layer({"max_messages": 5})})
    RuleBook({other: Layer({"min_messages": 10}), OWN: Layer({"max_messages": 5})})
    with pytest.raises(ValueError, match="min_messages is above max_messages"):
        RuleBook({ACME: Layer({"min_messages": 10}), OWN: Layer({"max_messages": 5})})
    same = {RuleScope("tenant", name): Layer({"min_messages": 10}) for name in ("aaa", "acme", "zzz")}
    with pytest.raises(ValueError, match="tenant acme"):
        RuleBook(same | {OWN: Layer({"max_messages": 5})})


def test_layers_of_different_kinds_that_say_the_same_are_each_judged() -> None:
    """What fits below a tenant need not fit above it."""
    same, slow = {"max_wait_ms": 3_000}, {"silence_ms": 5_000, "max_wait_ms": 6_000}
    assert book(platform=same, tenant=slow).rules_for(ANN).max_wait_ms == 6_000
    with pytest.raises(ValueError, match="is above max_wait_ms") as refusal:
        book(platform=same, tenant=slow, agent=same)
    assert "[tenant acme] and [agent sales]" in str(refusal.value)


def test_a_conversation_is_judged_together_with_its_platform_and_tenant() -> None:
    slow = {"silence_ms": 50_000}
    patient = {"max_wait_ms": 60_000}
    assert book(tenant=patient, conversation=slow).rules_for(ANN).silence_ms == 50_000
    assert book(platform=patient, conversation=slow).rules_for(ANN).silence_ms == 50_000
    with pytest.raises(ValueError, match="is above max_wait_ms") as refusal:
        book(tenant=patient, agent={"max_wait_ms": 40_000}, conversation=slow)
    assert "[agent sales] and [conversation acme:" in str(refusal.value)


def test_a_refusal_names_who_said_what_is_impossible_and_nobody_else() -> None:
    with pytest.raises(ValueError, match=r"So it would be for \[tenant acme\]\.$"):
        book(default={"capacity": 9}, platform={"silence_ms": 1}, tenant={"silence_ms": 50_000})
    with pytest.raises(ValueError, match=r"So it would be for \[tenant acme\]\.$"):
        book(default={"capacity": 9}, tenant={"stop_words": ["@xx"]})


def test_a_contradiction_is_found_among_thousands_of_layers() -> None:
    tenants = {RuleScope("tenant", f"t{n}"): Layer({"max_wait_ms": 20_000 + n % 3}) for n in range(3_000)}
    agents = {RuleScope("agent", f"a{n}"): Layer({"silence_ms": 2_000}) for n in range(3_000)}
    RuleBook(tenants | agents)
    with pytest.raises(ValueError, match=r"silence_ms \(25000\) is above max_wait_ms \(2000\d\)"):
        RuleBook(tenants | agents | {RuleScope("agent", "slow"): Layer({"silence_ms": 25_000})})


VALUES = st.dictionaries(
    st.sampled_from(["silence_ms", "capacity", "activity_ms", "ttl_ms", "max_attempts"]), st.integers(1, 9), max_size=4
)
SCOPES = st.sampled_from(
    [DEFAULT, WHATSAPP, RuleScope("platform", "slack"), ACME, SALES, RuleScope("agent", "support"), OWN]
)
LAYERS = st.dictionaries(
    SCOPES, st.builds(Layer, VALUES, preset=st.sampled_from(["", "", "interview", "high-volume"])), max_size=6
)


@hypothesis.settings(deadline=None)
@given(LAYERS, LAYERS, st.sampled_from(["", "sales", "support"]), st.sampled_from([ANN, BOB]))
def test_every_rule_is_what_the_most_specific_layer_that_names_it_says(
    settings: dict[RuleScope, Layer], live: dict[RuleScope, Layer], agent: str, key: ConversationKey
) -> None:
    """Told the other way round: for each rule, the layers are asked from the most specific on until one names it."""
    rules, explained = (ours := RuleBook(settings, live)).rules_for(key, agent), ours.explain(key, agent)
    ids = {"default": "", "platform": key.channel, "tenant": key.tenant, "agent": agent, "conversation": str(key)}
    for name, default in vars_of(Rules()).items():
        value = default
        for kind in reversed(SCOPE_KINDS):
            scope = RuleScope(kind, ids[kind])
            layer = next(
                (each[scope] for each in (live, settings) if scope in each and name in says(each[scope])), None
            )
            if layer is not None:
                value = says(layer)[name]
                break
        assert getattr(rules, name) == explained[name].value == value


def vars_of(rules: Rules) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in rules.__struct_fields__}


def says(layer: Layer) -> dict[str, Any]:
    preset = vars_of(PRESETS[layer.preset]) if layer.preset else {}
    return {name: value for name, value in preset.items() if value != getattr(Rules(), name)} | layer.values


def test_rules_that_differ_by_agent_are_known_once_the_agent_is() -> None:
    """Whoever has a message without an agent gets what answers for each; all who have no layer share one."""
    rules = book(tenant={"silence_ms": 700}, agent={"silence_ms": 2_000}).of(ANN)
    assert (rules.of("sales").silence_ms, rules.of("support").silence_ms, rules.of("").silence_ms) == (2_000, 700, 700)
    assert rules.of("support") is rules.of("")


def test_what_is_the_same_for_all_is_looked_up_by_nothing() -> None:
    """One value for every conversation, and nothing that grows with them."""
    ours = book(default={"silence_ms": 700})
    assert ours.of(ANN) is ours.of(BOB) is ours.default
    assert ours.default == Rules(silence_ms=700)
    assert not ours._places


def test_rules_are_worked_out_once_for_each_platform_with_its_tenant() -> None:
    """A million conversations of a tenant share one value; one with rules of its own has another."""
    ours = book(tenant={"silence_ms": 700}, conversation={"silence_ms": 9})
    others = [ConversationKey.of(f"c{number}", tenant="acme", channel="whatsapp") for number in range(5)]
    assert len({id(ours.of(key)) for key in others}) == 1
    assert ours.of(ANN).of("").silence_ms == 9
    assert set(ours._places) == {("whatsapp", "acme"), ANN}


def test_no_more_places_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants come from outside: somebody may make them up."""
    monkeypatch.setattr(scopes, "MOST_KNOWN", 3)
    ours = book(tenant={"silence_ms": 700})
    for number in range(10):
        assert ours.of(ConversationKey.of("ann", tenant=f"t{number}")).of("") == Rules()
    assert len(ours._places) <= 3
    assert ours.of(ANN).of("").silence_ms == 700


def test_a_table_says_rules_for_everybody_and_for_single_scopes() -> None:
    """As turntake.toml has them, for programs that have no file."""
    table = {"silence_ms": 700, "tenant": {"acme": {"preset": "quick-support", "capacity": 9}}, "agent": {"sales": {}}}
    assert layers_in(table) == {
        DEFAULT: Layer({"silence_ms": 700}),
        ACME: Layer({"capacity": 9}, "quick-support"),
        SALES: Layer(),
    }


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"tenant": 5}, r"\[tenant\] is of type int: write a table"),
        ({"tenant": {"acme": 5}}, r"\[tenant acme\] is of type int: write a table"),
        ({"tenants": {}}, "tenants: there is no such field"),
        ({"agent": {"": {}}}, "Which agent"),
        ({"conversation": {"ann": {}}}, "A conversation key reads"),
    ],
)
def test_a_table_that_says_nothing_that_could_be_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        layers_in(table)


@pytest.mark.parametrize(("kind", "id"), [("default", "acme"), ("team", "acme"), ("tenant", ""), ("platform", "a\x00")])
def test_a_scope_that_there_cannot_be_is_refused(kind: str, id: str) -> None:
    with pytest.raises(ValueError, match=r"no id|no scope|empty|control"):
        scope_of(kind, id)


def test_a_scope_has_its_id_as_keys_have_it() -> None:
    """Two spellings of one name are one tenant."""
    assert scope_of("tenant", "cafe\u0301") == RuleScope("tenant", "caf\u00e9")
    assert scope_of("default") == scope_of("default", "default") == DEFAULT
    assert scope_of("conversation", str(ANN)) == OWN
