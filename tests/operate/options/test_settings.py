"""The settings: what is read off the structs and the channels, and how a value is shown."""

import msgspec
import pytest

from turntake.operate.options.catalogue import catalogue
from turntake.operate.options.settings import allowed, shown
from turntake.rules.rules import Rules

CATALOGUE = catalogue()
SETTINGS, BY_KEY = CATALOGUE.settings, CATALOGUE.by_key


def test_every_rule_is_a_setting_with_the_same_default() -> None:
    """The rules' names, types and defaults are written once, in the rules."""
    of_rules = {s.name: s.default for s in SETTINGS if s.section == "rules" and s.name != "preset"}
    assert of_rules == {field.name: field.default for field in msgspec.structs.fields(Rules)}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_in_order(setting: object) -> None:
    """Its default has its type, its sentence ends, and no two share a name in the environment."""
    assert setting in SETTINGS
    (found,) = [s for s in SETTINGS if s is setting]
    msgspec.convert(found.default, found.type)
    assert found.sentence.endswith((".", "…"))
    assert len([s for s in SETTINGS if s.env == found.env]) == 1


DAY_MS, WEEK_MS, MANY = 86_400_000, 604_800_000, 100_000
LIMITS = {
    "port": (0, 65_535),
    "rules.silence_ms": (0, WEEK_MS),
    "rules.typing_inference_ms": (0, WEEK_MS),
    "rules.max_wait_ms": (0, WEEK_MS),
    "rules.min_messages": (1, MANY),
    "rules.max_messages": (1, MANY),
    "rules.capacity": (1, MANY),
    "rules.max_turn_bytes": (1, 64 * 1_048_576),
    "rules.window_ms": (0, WEEK_MS),
    "rules.activity_ms": (0, WEEK_MS),
    "rules.ttl_ms": (0, WEEK_MS),
    "rules.max_interrupts": (0, MANY),
    "rules.max_attempts": (1, MANY),
    "rules.history_keep_ms": (0, 3_650 * DAY_MS),
    "rules.priority": (-10, 10),
    "rules.share": (1, 10_000),
    "rules.tenant_turns": (0, MANY),
    "rules.hold_word_ms": (0, WEEK_MS),
    "rules.cut_text_ms": (0, WEEK_MS),
    "rules.messages_per_minute": (0, 1_000_000_000),
    "rules.bytes_per_minute": (0, 1_000_000_000),
    "rules.tenant_messages_per_minute": (0, 1_000_000_000),
    "rules.tenant_bytes_per_minute": (0, 1_000_000_000),
    "worker.concurrency": (1, MANY),
    "worker.lease_ms": (100, DAY_MS),
    "worker.shutdown_ms": (0, WEEK_MS),
    "worker.handler_ms": (1, DAY_MS),
    "history.keep_ms": (0, None),
    "dedupe.keep_ms": (0, None),
    "letters.keep_ms": (0, None),
    "http.body_bytes": (1_024, 64 * 1_048_576),
    "http.receive_ms": (1, DAY_MS),
    "http.header_bytes": (1_024, 1_048_576),
    "http.header_fields": (10, 10_000),
    "http.header_ms": (1, DAY_MS),
    "http.connections": (1, 1_000_000),
    "http.drain_ms": (0, WEEK_MS),
    "http_agent.timeout_ms": (1, DAY_MS),
    "http_agent.complete_within_ms": (1, DAY_MS),
    "webhooks.body_bytes": (1_024, 64 * 1_048_576),
    "webhooks.oldest_ms": (0, 3_650 * DAY_MS),
    "replies.timeout_ms": (1, DAY_MS),
}


def test_every_number_has_the_limits_that_installations_rely_on() -> None:
    """A value that a release takes, the next one takes too; 0 is refused where nothing would work with it."""
    assert {setting.key for setting in SETTINGS if isinstance(setting.default, int)} - LIMITS.keys() == {
        setting.key for setting in SETTINGS if isinstance(setting.default, bool)
    }
    for key, (least, most) in LIMITS.items():
        kind = BY_KEY[key].type
        assert msgspec.convert(least, kind) == least
        assert msgspec.convert(most or 2**62, kind) == (most or 2**62)
        for beyond in (least - 1, *([most + 1] if most else [])):
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(beyond, kind)


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("api_keys", ("a", "b"), "set (2)"),
        ("agent_secret", "x", "set"),
        ("agent_secret", "", "not set"),
        ("store", "redis://me:pass@host/0?password=x", "redis://me:…@host/0?…"),
        ("store", "sqlite:///turntake.db", "sqlite:///turntake.db"),
        ("store", "redis://:pass@host", "redis://:…@host"),
        ("store", "rediss://me:pass@host:6380/0", "rediss://me:…@host:6380/0"),
        ("store", "valkey://host:6379/0?prefix=t", "valkey://host:6379/0?…"),
        ("store", "redis+sentinel://me:pass@h1:1,h2:2/main", "redis+sentinel://me:…@h1:1,h2:2/main"),
        ("store", "redis+sentinel://me:pass@h1:1,you:pass@h2:2/main", "redis+sentinel://me:…@h2:2/main"),
        ("store", "postgresql://me:pass@host/db?password=pass&sslpassword=pass", "postgresql://me:…@host/db?…"),
        ("store", "postgresql:///db?host=/run&password=pass:pass@pass", "postgresql:///db?…"),
        ("store", "postgresql://host?password=pass/pass", "postgresql://host?…"),
        ("store", "redis://:pass/pass?pass@pass@host", "redis://:…@host"),
        ("store", "me:pass@host", "me:…@host"),
        ("store", "host=h password=pass dbname=d", "host=h password=… dbname=d"),
        ("store", r"sslpassword = 'it\'s pass' PASSWORD=pa\ ss user=me", "sslpassword = … PASSWORD=… user=me"),
        ("store", "host=h password=pass://pass", "host=h password=…"),
        ("agent", "https://me:pass@host/a?token=pass", "https://me:…@host/a?…"),
        ("agent", "a:b", "a:b"),
        ("rules.enabled", True, "true"),
        ("slack.accounts", ("a", "b"), "a, b"),
        ("slack.accounts", (), ""),
    ],
)
def test_what_people_see_of_a_value(key: str, value: object, seen: str) -> None:
    assert shown(BY_KEY[key], value) == seen
    assert "pass" not in seen.replace("password", "")


@pytest.mark.parametrize(
    ("key", "env", "flag"),
    [
        ("whatsapp.app_secret", "TURNTAKE_WHATSAPP_APP_SECRET", ""),
        ("whatsapp.phone_number_id", "TURNTAKE_WHATSAPP_PHONE_NUMBER_ID", "--whatsapp-phone-number-id"),
        ("whatsapp.accounts", "TURNTAKE_WHATSAPP_ACCOUNTS", "--whatsapp-accounts"),
        ("slack.signing_secret", "TURNTAKE_SLACK_SIGNING_SECRET", ""),
        ("twilio.api_base", "TURNTAKE_TWILIO_API_BASE", "--twilio-api-base"),
        ("generic.secret", "TURNTAKE_GENERIC_SECRET", ""),
        ("generic.callback_url", "TURNTAKE_GENERIC_CALLBACK_URL", "--generic-callback-url"),
    ],
)
def test_options_of_channels_are_settings(key: str, env: str, flag: str) -> None:
    assert (BY_KEY[key].env, BY_KEY[key].flag) == (env, flag)


def test_a_setting_has_one_name_in_the_environment_and_as_a_flag() -> None:
    setting = BY_KEY["rules.silence_ms"]
    assert (setting.env, setting.flag) == ("TURNTAKE_RULES_SILENCE_MS", "--rules-silence-ms")
    assert allowed(BY_KEY["http.body_bytes"]).startswith("an integer of bytes from ")
    assert BY_KEY["api_keys"].flag == ""
