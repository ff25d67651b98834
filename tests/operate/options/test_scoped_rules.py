"""Rules for one platform, tenant, agent or conversation in turntake.toml."""

from pathlib import Path

from turntake.operate.assemble import assemble
from turntake.operate.options.sources import load
from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.rules.scopes import DEFAULT, Layer, RuleBook, RuleScope

ANN = ConversationKey.of("ann", tenant="acme", channel="whatsapp")
BOB = ConversationKey.of("bob")
TEXT = f"""
store = "memory://"
[rules]
capacity = 40
[rules.platform.whatsapp]
silence_ms = 700
[rules.tenant.acme]
preset = "quick-support"
max_wait_ms = 6000
[rules.agent.sales]
activity_ms = 1
[rules.conversation."{ANN}"]
max_attempts = 9
"""


def written(text: str) -> None:
    Path("turntake.toml").write_text(text)


def test_each_table_is_a_layer_that_overrides_only_what_it_names() -> None:
    """The flags and the environment are about everybody."""
    written(TEXT)
    options = load({"rules.max_messages": "7"}, environ={"TURNTAKE_RULES_CAPACITY": "30"})
    assert options.layers == {
        DEFAULT: Layer({"capacity": 30, "max_messages": 7}),
        RuleScope("platform", "whatsapp"): Layer({"silence_ms": 700}),
        RuleScope("tenant", "acme"): Layer({"max_wait_ms": 6_000}, "quick-support"),
        RuleScope("agent", "sales"): Layer({"activity_ms": 1}),
        RuleScope("conversation", str(ANN)): Layer({"max_attempts": 9}),
    }
    assert options.rules == Rules(capacity=30, max_messages=7)
    rules = RuleBook(options.layers).rules_for(ANN, "sales")
    assert rules == Rules(
        capacity=30, max_messages=7, silence_ms=500, typing_inference_ms=500, max_wait_ms=6_000, activity_ms=1,
        max_attempts=9,
    )  # fmt: skip


def test_what_is_set_for_a_scope_is_shown_with_where_it_came_from() -> None:
    """Doctor lists it; what is not set there is not listed."""
    written(TEXT)
    sources = load(environ={}).sources
    keys = [setting.key for setting in sources.settings if setting.key.startswith("rules.tenant.")]
    assert keys == ["rules.tenant.acme.preset", "rules.tenant.acme.max_wait_ms"]
    assert sources.values["rules.tenant.acme.max_wait_ms"].origin == "turntake.toml"


def test_a_table_without_rules_says_nothing() -> None:
    written("[rules.tenant.acme]\n[rules.agent]\n")
    assert load(environ={}).layers == {}


def test_the_service_lives_by_them() -> None:
    written(TEXT)
    turns = assemble(load(environ={})).turns
    assert turns.rules == Rules(capacity=40)
    assert turns.rules_for(BOB) == Rules(capacity=40)
    assert turns.rules_for(BOB, "sales") == Rules(capacity=40, activity_ms=1)
    assert turns.rules_for(ANN).max_wait_ms == 6_000


def test_a_name_is_written_as_people_write_it() -> None:
    """Keys have one form of it."""
    written('store = "memory://"\n[rules.tenant."cafe\u0301"]\nsilence_ms = 700\n')
    assert RuleBook(load(environ={}).layers).rules_for(ConversationKey.of("ann", tenant="caf\u00e9")).silence_ms == 700
