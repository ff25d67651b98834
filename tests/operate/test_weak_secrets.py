"""Secrets that somebody could guess."""

import pytest

from turntake import ConfigurationError
from turntake.operate.options.sources import load
from turntake.operate.weak_secrets import refuse_weak_secrets, weak_secrets, why_weak

LONG = "0f6e1c9ab7d34452"


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("a", "is shorter than 16 characters"),
        (LONG[:-1], "is shorter than 16 characters"),
        (LONG, ""),
        ("change-me", "is an example that everybody knows"),
        ("Correct-Horse-Battery-Staple", "is an example that everybody knows"),
        ("whsec_YQ", "is shorter than 24 bytes"),
        ("whsec_" + "YWJj" * 7, "is shorter than 24 bytes"),
        ("whsec_" + "YWJj" * 8, ""),
        ("whsec_é", "is shorter than 24 bytes"),
    ],
)
def test_what_is_weak(secret: str, why: str) -> None:
    assert why_weak(secret) == why


@pytest.mark.parametrize(
    "environ",
    [
        {"TURNTAKE_API_KEYS": "a", "TURNTAKE_HOST": "0.0.0.0"},
        {"TURNTAKE_API_KEYS": "change-me", "TURNTAKE_HOST": "0.0.0.0"},
        {"TURNTAKE_API_KEYS": "my key", "TURNTAKE_HOST": "0.0.0.0"},
        {"TURNTAKE_API_KEYS": "secret", "TURNTAKE_PUBLIC_URL": "https://bot.example"},
        {"TURNTAKE_GENERIC_SECRET": "whsec_YQ", "TURNTAKE_PUBLIC_URL": "https://bot.example"},
        {"TURNTAKE_TELEGRAM_SECRET_TOKEN": "local", "TURNTAKE_PUBLIC_URL": "https://bot.example"},
        {"TURNTAKE_AGENT_SECRET": "x", "TURNTAKE_PUBLIC_URL": "https://bot.example"},
    ],
)
def test_a_server_that_others_reach_does_not_start_with_them(environ: dict[str, str]) -> None:
    name = next(name for name in environ if name not in ("TURNTAKE_HOST", "TURNTAKE_PUBLIC_URL"))
    with pytest.raises(ConfigurationError, match=f"{name} is (shorter than|an example)") as raised:
        refuse_weak_secrets(load(environ=environ))
    assert environ[name] not in str(raised.value).replace("openssl rand -hex 32", "").partition(" ")[2].split()


def test_what_a_platform_gave_out_is_only_warned_about() -> None:
    """Its own are never weak; whoever sets another is trying something out."""
    options = load(environ={"TURNTAKE_TWILIO_AUTH_TOKEN": "x", "TURNTAKE_PUBLIC_URL": "https://bot.example"})
    refuse_weak_secrets(options)
    assert "TURNTAKE_TWILIO_AUTH_TOKEN" in weak_secrets(options)[0]


def test_one_that_only_this_machine_reaches_starts_and_warns() -> None:
    options = load(environ={"TURNTAKE_WHATSAPP_APP_SECRET": "local", "TURNTAKE_API_KEYS": "secret"})
    refuse_weak_secrets(options)
    (warning,) = weak_secrets(options)
    assert warning == (
        "Easy to guess: TURNTAKE_API_KEYS (make one with `openssl rand -hex 32`), "
        "TURNTAKE_WHATSAPP_APP_SECRET (copy what the platform gave you). Change that before others reach this server."
    )


def test_good_ones_are_not_talked_about() -> None:
    names = ("TURNTAKE_API_KEYS", "TURNTAKE_GENERIC_SECRET", "TURNTAKE_TELEGRAM_SECRET_TOKEN")
    options = load(environ=dict.fromkeys(names, f"{LONG},{LONG}x") | {"TURNTAKE_HOST": "0.0.0.0"})
    refuse_weak_secrets(options)
    assert weak_secrets(options) == []


@pytest.mark.parametrize("name", ["TURNTAKE_GENERIC_SECRET", "TURNTAKE_WHATSAPP_VERIFY_TOKEN", "TURNTAKE_API_KEYS"])
def test_a_comma_that_cuts_a_secret_is_noticed_anywhere(name: str) -> None:
    """The shorter half would open the door."""
    with pytest.raises(ConfigurationError, match=r"separated by commas: is one of the commas part of a secret\?"):
        refuse_weak_secrets(load(environ={name: "correct-horse-battery,a"}))
