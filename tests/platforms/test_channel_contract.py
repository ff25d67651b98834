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

from turntake.errors import ConfigurationError, Forged, GiveUp, RetryLater, SendFailed
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Request
from turntake.platforms.check import WhoAmI
from turntake.platforms.discord.webhooks import Discord
from turntake.platforms.generic.webhooks import Generic
from turntake.platforms.instagram.webhooks import Instagram
from turntake.platforms.messenger.webhooks import Messenger
from turntake.platforms.replies import ApiResponse, Recipient
from turntake.platforms.slack.webhooks import Slack
from turntake.platforms.telegram.webhooks import Telegram
from turntake.platforms.twilio.webhooks import Twilio
from turntake.platforms.whatsapp.webhooks import WhatsApp
from turntake.rules.key import ConversationKey
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
    sample_id = "SM0123456789abcdef0123456789abcdef"


class TestWhatsApp(ChannelContract):
    channel = WhatsApp
    recordings = recordings_in(RECORDINGS / "whatsapp")
    proof = ("x-hub-signature-256",)


def documented() -> dict[str, Any]:
    """What the guide for authors of channels tells them to write."""
    guide = (RECORDINGS.parents[1] / "docs" / "howto" / "channel-plugin.md").read_text()
    replies, channel, *_ = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {"__name__": "pigeon"}
    exec(replies + channel, names)
    return names


GUIDE = documented()
Pigeon: type[Channel] = GUIDE["Pigeon"]
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

    def read(self, request: Request) -> Delivery:
        return Delivery((ChatEvent(kind="message", **json.loads(request.body)),))


class Forgetful(Pigeon):  # type: ignore[valid-type,misc]
    """Knows nothing again."""

    count = itertools.count()

    def read(self, request: Request) -> Delivery:
        return Delivery(tuple(replace(event, id=str(next(self.count))) for event in super().read(request).events))


class Careless(Pigeon):  # type: ignore[valid-type,misc]
    """Passes on what no store can keep."""

    def read(self, request: Request) -> Delivery:
        return Delivery(tuple(replace(event, metadata={"n": 2**70}) for event in super().read(request).events))


class Echoing(Pigeon):  # type: ignore[valid-type,misc]
    """Reads something else than what was written."""

    def read(self, request: Request) -> Delivery:
        return Delivery(tuple(replace(event, text=event.text.upper()) for event in super().read(request).events))


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
    with pytest.raises((AssertionError, TypeError, OverflowError, pytest.fail.Exception)):
        check(suite, ours[0])


def test_the_replies_in_the_guide_do_what_the_guide_says() -> None:
    """A call with the token and the key against double sends; each refusal becomes the right error."""
    api = Pigeon({"token": "t0ken"}).reply_api()
    to = Recipient(ConversationKey.of("loft-7", channel="pigeon"), "turn_1", ())
    call = api.reply_call(to, "hi", "turn_1-0")
    assert (call.url, call.headers["authorization"]) == ("https://api.pigeon.example/letters", "Bearer t0ken")
    assert json.loads(call.body) == {"loft": "loft-7", "text": "hi", "once": "turn_1-0"}
    assert api.check(ApiResponse(201, {"x-pigeon-ring": "ring-9"})) == "ring-9"
    with pytest.raises(RetryLater) as later:
        api.check(ApiResponse(429, {"retry-after": "7"}))
    assert later.value.after_ms == 7_000
    for status, error in ((403, GiveUp), (502, SendFailed)):
        with pytest.raises(error):
            api.check(ApiResponse(status))


def test_the_question_in_the_guide_is_answered() -> None:
    question = Pigeon({"token": "t0ken"}).whoami()
    assert question is not None
    known = question.read(ApiResponse(200, {}, b'{"loft": {"name": "The roof"}}'), "TURNTAKE_PIGEON_TOKEN")
    assert known == ("ok", "the platform knows us as The roof")
    refused = question.read(ApiResponse(401, {}, b'{"error": "no such pigeon"}'), "TURNTAKE_PIGEON_TOKEN")
    assert refused == ("fail", "the platform refuses TURNTAKE_PIGEON_TOKEN: no such pigeon")


def test_a_channel_without_an_api_says_so() -> None:
    with pytest.raises(ConfigurationError, match="Generic has no API to reply through"):
        Generic({}).reply_api()


class Nosy(Pigeon):  # type: ignore[valid-type,misc]
    """Asks with an option that it does not have."""

    def whoami(self) -> WhoAmI:
        question: WhoAmI = super().whoami()
        return replace(question, options=("tokn",))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a hostile body, when the example is shown
def test_the_contract_finds_a_question_about_an_option_that_does_not_exist() -> None:
    suite = type("Suite", (TestTheChannelInTheGuide,), {"channel": Nosy})()
    with pytest.raises(AssertionError):
        suite.test_whoami_is_a_call_and_reads_any_response()
