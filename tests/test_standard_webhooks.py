"""Signatures, as somebody else's verifier sees them."""

import base64

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from turntake import ConfigurationError
from turntake.clock import SystemClock
from turntake.standard_webhooks import Signer

OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 31).decode()
BODY = '{"text":"Grüße 👋"}'.encode()


def now() -> int:
    return SystemClock().now()


@pytest.mark.parametrize("receiver", [Webhook(OLD), Webhook(NEW)])
def test_each_of_several_secrets_verifies(receiver: Webhook) -> None:
    """So a secret can be changed while messages flow."""
    headers = Signer(f"{OLD} {NEW}").headers("turn_1", BODY, now())
    assert receiver.verify(BODY, headers) == {"text": "Grüße 👋"}


def test_a_plain_secret_is_the_key_itself() -> None:
    assert Webhook(b"not_base64!").verify(BODY, Signer("not_base64!").headers("turn_1", BODY, now()))


def test_padding_may_be_missing() -> None:
    assert Webhook(NEW).verify(BODY, Signer(NEW.rstrip("=")).headers("turn_1", BODY, now()))


@pytest.mark.parametrize("changed", ["body", "webhook-id", "secret"])
def test_anything_changed_fails(changed: str) -> None:
    """The body, the id and the secret all count."""
    headers = Signer(OLD).headers("turn_1", BODY, now())
    body = BODY + b" " if changed == "body" else BODY
    if changed == "webhook-id":
        headers["webhook-id"] = "turn_2"
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW if changed == "secret" else OLD).verify(body, headers)


def test_an_old_timestamp_fails() -> None:
    """Each try is signed at its own time, so a recorded one cannot be played again later."""
    headers = Signer(OLD).headers("turn_1", BODY, now() - 3_600_000)
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(OLD).verify(BODY, headers)


def test_without_a_secret_nothing_is_signed() -> None:
    assert Signer("  ").headers("turn_1", BODY, 1_700_000_000_999) == {
        "webhook-id": "turn_1",
        "webhook-timestamp": "1700000000",
    }


@pytest.mark.parametrize("secret", ["whsec_", "whsec_====", "whsec_sesame!", "whsec_a"])
def test_a_broken_secret_is_refused_and_not_repeated(secret: str) -> None:
    """An empty key would verify for anybody; and the message may end up in a log."""
    with pytest.raises(ConfigurationError, match="base64") as refused:
        Signer(secret)
    assert "sesame" not in str(refused.value)
