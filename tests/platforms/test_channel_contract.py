"""Every channel we ship passes what we ask of everybody's."""

import itertools
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from turntake.errors import Forged
from turntake.platforms.channel import Channel, ChatEvent, Request
from turntake.platforms.discord.webhooks import Discord
from turntake.platforms.generic.webhooks import Generic
from turntake.platforms.instagram.webhooks import Instagram
from turntake.platforms.messenger.webhooks import Messenger
from turntake.platforms.slack.webhooks import Slack
from turntake.platforms.telegram.webhooks import Telegram
from turntake.platforms.twilio.webhooks import Twilio
from turntake.platforms.whatsapp.webhooks import WhatsApp
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import RecordedRequest, Recording, recordings_in

RECORDINGS = Path(__file__).parents[1] / "recordings"
GENERIC = recordings_in(RECORDINGS / "generic")


def is_signed(recording: Recording) -> bool:
    return not recording.name.startswith("shared-secret")


class TestDiscord(ChannelContract):
    channel = Discord
    recordings = recordings_in(RECORDINGS / "discord")
    proof = ("x-signature-ed25519", "x-signature-timestamp")


class TestGeneric(ChannelContract):
    channel = Generic
    recordings = tuple(filter(is_signed, GENERIC))
    proof = ("webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256")


class TestGenericWithASharedSecret(ChannelContract):
    channel = Generic
    recordings = tuple(recording for recording in GENERIC if not is_signed(recording))
    proof = ("authorization", "x-webhook-secret")
    covers_body = False


class TestInstagram(ChannelContract):
    channel = Instagram
    recordings = recordings_in(RECORDINGS / "instagram")
    proof = ("x-hub-signature-256",)


class TestMessenger(ChannelContract):
    channel = Messenger
    recordings = recordings_in(RECORDINGS / "messenger")
    proof = ("x-hub-signature-256",)


class TestSlack(ChannelContract):
    channel = Slack
    recordings = recordings_in(RECORDINGS / "slack")
    proof = ("x-slack-signature", "x-slack-request-timestamp")


class TestTelegram(ChannelContract):
    channel = Telegram
    recordings = recordings_in(RECORDINGS / "telegram")
    proof = ("x-telegram-bot-api-secret-token",)
    covers_body = False


class TestTwilio(ChannelContract):
    channel = Twilio
    recordings = recordings_in(RECORDINGS / "twilio")
    proof = ("x-twilio-signature",)


class TestWhatsApp(ChannelContract):
    channel = WhatsApp
    recordings = recordings_in(RECORDINGS / "whatsapp")
    proof = ("x-hub-signature-256",)


def documented() -> dict[str, Any]:
    """What the guide for authors of channels tells them to write."""
    guide = (RECORDINGS.parents[1] / "docs" / "howto" / "channel-plugin.md").read_text()
    found = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": "pigeon"}
    exec(found[1], names)
    return names


Pigeon: type[Channel] = documented()["Pigeon"]
SECRET = {"secret": "sesame,street"}


def letter(text: str, **signed: str) -> Recording:
    made = Pigeon(SECRET).sample(text, sender="loft", id=text, url="https://bot.example/webhooks/pigeon", now=0)
    written = RecordedRequest(made.method, made.url, {**made.headers, **signed}, made.body.decode())
    said = {"kind": "message", "conversation": "loft", "sender": "loft", "id": text, "text": text}
    return Recording(note="", name=text, options=SECRET, written=written, events=[said])


class TestTheChannelInTheGuide(ChannelContract):
    channel = Pigeon
    recordings = (letter("hi"), letter("Grüße 👋"))
    proof = ("x-pigeon-signature",)


class Gullible(Pigeon):  # type: ignore[valid-type,misc]
    """Believes everybody."""

    def verify(self, request: Request, now: int) -> None:
        return


class Empty(Pigeon):  # type: ignore[valid-type,misc]
    """Takes no secret for a secret."""

    def verify(self, request: Request, now: int) -> None:
        if self._values["secret"].strip(" ,"):
            super().verify(request, now)


class Sloppy(Pigeon):  # type: ignore[valid-type,misc]
    """Does not look at the end of the body."""

    def verify(self, request: Request, now: int) -> None:
        for end in (len(request.body), -1):
            with suppress(Forged):
                super().verify(replace(request, body=request.body[:end]), now)
                return
        raise Forged("It is not signed.")


class Fragile(Pigeon):  # type: ignore[valid-type,misc]
    """Falls over what it does not expect."""

    def events_in(self, request: Request) -> list[ChatEvent]:
        return [ChatEvent(kind="message", **json.loads(request.body))]


class Forgetful(Pigeon):  # type: ignore[valid-type,misc]
    """Knows nothing again."""

    count = itertools.count()

    def events_in(self, request: Request) -> list[ChatEvent]:
        return [replace(event, id=str(next(self.count))) for event in super().events_in(request)]


class Careless(Pigeon):  # type: ignore[valid-type,misc]
    """Passes on what no store can keep."""

    def events_in(self, request: Request) -> list[ChatEvent]:
        return [replace(event, id=event.id + "\ud800") for event in super().events_in(request)]


class Echoing(Pigeon):  # type: ignore[valid-type,misc]
    """Reads something else than what was written."""

    def events_in(self, request: Request) -> list[ChatEvent]:
        return [replace(event, text=event.text.upper()) for event in super().events_in(request)]


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Gullible, lambda suite, _: suite.test_a_changed_byte_of_the_body_is_forged()),
        (Gullible, lambda suite, each: suite.test_a_changed_character_of_the_proof_is_forged(each)),
        (Gullible, lambda suite, each: suite.check(each, replace(each.request, body=b"[]"))),
        (Gullible, lambda suite, each: suite.check(each, replace(each.request, headers={}))),
        (Empty, lambda suite, each: suite.test_an_unset_secret_believes_nobody(each, ",")),
        (Sloppy, lambda suite, _: suite.test_a_changed_byte_of_the_body_is_forged()),
        (Fragile, lambda suite, each: suite.check(each, replace(each.request, body=b"[]"))),
        (Forgetful, lambda suite, each: suite.test_a_replay_has_the_same_ids(each)),
        (Careless, lambda suite, each: suite.check(each, each.request)),
        (Echoing, lambda suite, each: suite.test_a_recording_is_believed_and_means_what_it_says(each)),
        (Echoing, lambda suite, _: suite.test_a_sample_is_believed_and_says_what_was_asked_for()),
        (Pigeon, lambda suite, _: suite.test_our_own_messages_are_not_buffered()),
    ],
)
def test_the_contract_finds_a_broken_channel(broken: type[Channel], check: Callable[[Any, Recording], None]) -> None:
    """Each of these fails where it should; the last reads its own words as a person's."""
    ours = tuple(replace(recording, own=True) for recording in TestTheChannelInTheGuide.recordings)
    suite = type("Suite", (TestTheChannelInTheGuide,), {"channel": broken, "recordings": ours})()
    with pytest.raises((AssertionError, TypeError, UnicodeEncodeError, pytest.fail.Exception)):
        check(suite, ours[0])
