"""Discord: interactions over HTTP. Pure.

Commands, buttons and forms come as webhooks; ordinary messages reach a bot only through the gateway, see
`discord_posts.py`. Both name a chat by its channel.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from turntake.errors import ConfigurationError, Forged, Unreadable
from turntake.platforms.channel import Channel, ChatEvent, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.discord.content import attachment_of, instant, is_group, texts_in, whole
from turntake.platforms.loose_json import at, object_at, object_in, objects_at, text_at

TOLERANCE_MS = 300_000
PING, COMMAND, COMPONENT, AUTOCOMPLETE, FORM = range(1, 6)
ANSWERS = {PING: {"type": 1}, COMPONENT: {"type": 6}, AUTOCOMPLETE: {"type": 8, "data": {"choices": []}}}
LATER = {"type": 5}
MENTIONS = {6: "<@{}>", 7: "<#{}>", 8: "<@&{}>"}
"""How a person, a channel and a role are written, by the type of a command's option."""
ATTACHED = 11

_KEY = re.compile(rb"[0-9a-fA-F]{64}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{128}")
_SECONDS = re.compile(r"[0-9]{1,12}")


GATEWAY = Option(
    "gateway",
    "true: hear ordinary messages and typing through Discord's gateway, not only commands.",
    use="listen",
    is_secret=False,
)


class Discord(Channel):
    """One Discord application. Its account is the application's id, which is its bot's user id too."""

    options = (
        Option(
            "public_key",
            "Checks that webhooks are Discord's: General Information, Public Key.",
            use="verify",
            is_secret=False,
        ),
        Option("bot_token", "Sends replies, and listens to the gateway: Bot, Token.", use="reply"),
        Option("api_base", "Where Discord's API is.", is_secret=False, default="https://discord.com/api/v10"),
        Option("private_key", "Only to try it without Discord: the seed, in hex, of a pair whose public_key you set."),
        GATEWAY,
    )

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self._keys = [VerifyKey(_key("PUBLIC_KEY", key)) for key in keys_in(self._values["public_key"])]

    def verify(self, request: Request, now: int) -> None:
        if not self._keys:
            raise Forged("No public key is set, so nobody can be believed: set TURNTAKE_DISCORD_PUBLIC_KEY.")
        signature = request.headers.get("x-signature-ed25519", "")
        seconds = request.headers.get("x-signature-timestamp", "")
        if not (_SIGNATURE.fullmatch(signature) and _SECONDS.fullmatch(seconds)):
            raise Forged("X-Signature-Ed25519 or X-Signature-Timestamp is missing, or not as Discord writes it.")
        if abs(now - int(seconds) * 1000) > TOLERANCE_MS:
            raise Forged("X-Signature-Timestamp is more than five minutes from now: check this machine's clock.")
        signed = seconds.encode() + request.body
        if not any(_is_signed(key, signed, bytes.fromhex(signature)) for key in self._keys):
            raise Forged("X-Signature-Ed25519 is not that of this body: check TURNTAKE_DISCORD_PUBLIC_KEY.")

    def events_in(self, request: Request) -> list[ChatEvent]:
        said = _read(request)
        if _is_notice(said):
            kind = text_at(said, "event", "type").lower()
            return [ChatEvent(kind=f"webhook_{kind}", account=text_at(said, "application_id"))] if kind else []
        return [] if said.get("type") == PING else [_interaction(said)]

    def answer(self, request: Request) -> WebhookAnswer:
        """What Discord must hear within three seconds; for what a person asked, that the answer comes later."""
        said = _read(request)
        if _is_notice(said):
            return WebhookAnswer(status=204)
        kind = said.get("type")
        answer = ANSWERS.get(kind, LATER) if isinstance(kind, int) else LATER
        return WebhookAnswer(msgspec.json.encode(answer), "application/json")

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        """A form that a person sent in, since nothing else says `text` and nothing more."""
        seeds = keys_in(self._values["private_key"])
        if not seeds:
            raise ConfigurationError(
                "Only Discord can sign for its public key. Send without a channel (`turntake send`), or set "
                "TURNTAKE_DISCORD_PRIVATE_KEY and _PUBLIC_KEY to a pair of your own."
            )
        line = {"type": 1, "components": [{"type": 4, "custom_id": "text", "value": text}]}
        body = msgspec.json.encode(
            {"id": id, "application_id": "1", "type": FORM, "token": "sample", "version": 1}
            | {"channel_id": sender, "user": {"id": sender}, "data": {"custom_id": "sample", "components": [line]}}
        )
        seconds = str(now // 1000)
        signed = SigningKey(_key("PRIVATE_KEY", seeds[0])).sign(seconds.encode() + body).signature
        headers = {"x-signature-timestamp": seconds, "x-signature-ed25519": signed.hex()}
        return Request("POST", url, {"content-type": "application/json", **headers}, body)


def _read(request: Request) -> dict[str, Any]:
    said = object_in(request.body)
    if said is None:
        raise Unreadable("The body is no JSON object in UTF-8, which Discord sends.")
    return said


def _interaction(said: dict[str, Any]) -> ChatEvent:
    """A command or a form is a message, a pressed button or menu a postback. The reply needs its token."""
    kind = said.get("type")
    channel = text_at(said, "channel_id") or text_at(said, "channel", "id")
    about = ChatEvent(
        kind="unsupported",
        account=text_at(said, "application_id"),
        conversation=channel,
        sender=text_at(said, "member", "user", "id") or text_at(said, "user", "id"),
        id=text_at(said, "id"),
        sent_at=instant("", text_at(said, "id")),
        is_group=is_group(said, at(said, "channel", "type")),
    )
    token = {"token": text_at(said, "token"), "application_id": about.account, "type": kind}
    if kind == COMMAND and channel:
        files = tuple(attachment_of(file, False) for file in _resolved(said, "attachments").values())
        metadata = {"command": text_at(said, "data", "name"), "interaction": token}
        return replace(about, kind="message", text=_command(said), attachments=files, metadata=metadata)
    if kind == FORM and channel:
        metadata = {"custom_id": text_at(said, "data", "custom_id"), "interaction": token}
        return replace(about, kind="message", text="\n".join(_filled_in(said)), metadata=metadata)
    return _press(said, about, token) if kind == COMPONENT and channel else about


def _press(said: dict[str, Any], about: ChatEvent, token: dict[str, Any]) -> ChatEvent:
    """What was chosen, or else the words on the button."""
    custom_id, values = text_at(said, "data", "custom_id"), texts_in(said, "data", "values")
    return replace(
        about,
        kind="postback",
        text="\n".join(values) or _label(said, custom_id) or custom_id,
        reply_to=text_at(said, "message", "id") or None,
        metadata={"custom_id": custom_id, "payload": custom_id, "values": values, "interaction": token},
    )


def _label(said: dict[str, Any], custom_id: str) -> str:
    rows = objects_at(said, "message", "components")
    buttons = (button for row in rows for button in objects_at(row, "components"))
    return next((text_at(button, "label") for button in buttons if button.get("custom_id") == custom_id), "")


def _command(said: dict[str, Any]) -> str:
    """As a person would write it: `/ask how are you`, or `/book from:Rome to:Oslo` if there are several options."""
    data = object_at(said, "data")
    path, options = [f"/{text_at(data, 'name')}"], objects_at(data, "options")
    # A group, then a command of it: each stands in the options of the one before.
    while len(options) == 1 and options[0].get("type") in (1, 2) and len(path) < 3:
        path, options = [*path, text_at(options[0], "name")], objects_at(options[0], "options")
    values = [(text_at(option, "name"), _value(option)) for option in options if option.get("type") != ATTACHED]
    words = [value if len(values) == 1 else f"{name}:{value}" for name, value in values]
    chosen = text_at(_resolved(said, "messages").get(text_at(data, "target_id")), "content")
    return " ".join(filter(None, [*path, *words, chosen]))


def _value(option: dict[str, Any]) -> str:
    value = option.get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else ""
    written = MENTIONS.get(whole(option.get("type")))
    return written.format(value) if written else str(value)


def _filled_in(said: dict[str, Any]) -> Iterator[str]:
    """A form's fields, a line each; a field stands in a row, or under a label."""
    for row in objects_at(said, "data", "components"):
        for field in [*objects_at(row, "components"), object_at(row, "component")]:
            yield from filter(None, [text_at(field, "value"), *texts_in(field, "values")])


def _resolved(said: dict[str, Any], what: str) -> dict[str, dict[str, Any]]:
    return {id: each for id, each in object_at(said, "data", "resolved", what).items() if isinstance(each, dict)}


def _is_notice(said: dict[str, Any]) -> bool:
    """Whether it is one of the "webhook events", which share the URL's form but want no words in answer."""
    return said.get("type") == 0 or "event" in said


def _is_signed(key: VerifyKey, signed: bytes, signature: bytes) -> bool:
    try:
        key.verify(signed, signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def _key(name: str, written: bytes) -> bytes:
    if not _KEY.fullmatch(written):
        raise ConfigurationError(f"TURNTAKE_DISCORD_{name} is not 64 hexadecimal digits: copy it anew.")
    return bytes.fromhex(written.decode())
