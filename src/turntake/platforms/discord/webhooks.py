"""Discord: interactions over HTTP. Pure.

Commands, buttons and forms come as webhooks; ordinary messages reach a bot only through the gateway: `gateway.py`
listens to it, and `content.py` reads it. Both name a chat by its channel.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from turntake.errors import ConfigurationError, Forged
from turntake.platforms.address import Interaction, write_interaction
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.check import WhoAmI
from turntake.platforms.discord import check
from turntake.platforms.discord.content import attachment_of, created_at, is_group
from turntake.platforms.discord.replies import DiscordReplies
from turntake.platforms.discord.sealed_token import seal
from turntake.platforms.loose_json import at, integer_at, object_at, objects_at, read_object, text_at, texts_at
from turntake.platforms.text_limit import TextLimit
from turntake.plugins import extra
from turntake.rules.message import Attachment

with extra("discord"):
    from nacl.exceptions import CryptoError
    from nacl.signing import SigningKey, VerifyKey

TOLERANCE_MS = 300_000
"""Five minutes, as Standard Webhooks advises: clocks may differ that much, and a replay is known by its id."""
PING, COMMAND, COMPONENT, AUTOCOMPLETE, FORM = range(1, 6)
ANSWERS: dict[int | None, dict[str, Any]] = {
    PING: {"type": 1},
    COMPONENT: {"type": 6},
    AUTOCOMPLETE: {"type": 8, "data": {"choices": []}},
}
LATER = {"type": 5}
MENTIONS: dict[int | None, str] = {6: "<@{}>", 7: "<#{}>", 8: "<@&{}>"}
"""How a person, a channel and a role are written, by the type of a command's option."""
ATTACHED = 11
UPLOAD = 19
DEEPEST = 5
"""How far down buttons are looked for. Discord allows a button in a row in a container, which is three."""

_KEY = re.compile(rb"[0-9a-fA-F]{64}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{128}")
_SECONDS = re.compile(r"[0-9]{1,12}")


class Discord(Channel):
    """One Discord application. Its account is the application's id, which is its bot's user id too."""

    title = "Discord"
    text_limit = TextLimit(2000)  # who pays may write more
    signed_by = frozenset({"x-signature-ed25519"})
    takes_get = False
    replies = DiscordReplies
    listener = "turntake.platforms.discord.gateway:DiscordGateway"
    listener_receives_messages = True
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
        Option(
            "gateway",
            "true: hear ordinary messages and typing through Discord's gateway, not only commands.",
            use="listen",
            is_secret=False,
        ),
    )

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
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

    def read(self, request: Request) -> Delivery:
        """Discord waits three seconds for the answer: for what a person asked, it says that a reply comes later."""
        payload = read_object(request.body, "Discord")
        if _is_notice(payload):
            notice = text_at(payload, "event", "type").lower()
            event = ChatEvent(kind=f"webhook_{notice}", account=text_at(payload, "application_id"))
            return Delivery((event,) if notice else (), WebhookAnswer(status=204))
        kind = integer_at(payload, "type")
        answer = WebhookAnswer(msgspec.json.encode(ANSWERS.get(kind, LATER)), "application/json")
        return Delivery(() if kind == PING else (self._interaction(payload),), answer)

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

    def whoami(self) -> WhoAmI:
        return check.whoami(self._values)

    def _interaction(self, payload: dict[str, Any]) -> ChatEvent:
        """A command or a form is a message, a pressed button or menu a postback. The reply needs its token."""
        kind = integer_at(payload, "type")
        about = ChatEvent(
            kind="unsupported",
            account=text_at(payload, "application_id"),
            conversation=text_at(payload, "channel_id") or text_at(payload, "channel", "id"),
            sender=text_at(payload, "member", "user", "id") or text_at(payload, "user", "id"),
            id=text_at(payload, "id"),
            sent_at=created_at(text_at(payload, "id")),
            is_group=is_group(payload, at(payload, "channel", "type")),
        )
        if kind not in (COMMAND, FORM, COMPONENT) or not about.conversation:
            return about
        sealed = seal(text_at(payload, "token"), self._values["bot_token"])
        interaction = write_interaction(Interaction(sealed, about.account, kind)) if sealed else {}
        if kind == COMPONENT:
            return _press(payload, about, interaction)
        data = object_at(payload, "data")
        if kind == COMMAND:
            text, facts = _command(payload), {"command": text_at(data, "name")}
        else:
            text, facts = "\n".join(_filled_in(payload)), {"custom_id": text_at(data, "custom_id")}
        return replace(about, kind="message", text=text, attachments=_files(payload), metadata=facts | interaction)


def _press(payload: dict[str, Any], about: ChatEvent, interaction: dict[str, Any]) -> ChatEvent:
    """What was chosen, or else the words on the button."""
    custom_id, values = text_at(payload, "data", "custom_id"), texts_at(payload, "data", "values")
    return replace(
        about,
        kind="postback",
        text="\n".join(values) or _label(payload, custom_id) or custom_id,
        reply_to=text_at(payload, "message", "id") or None,
        metadata={"custom_id": custom_id, "payload": custom_id, "values": values} | interaction,
    )


def _label(payload: dict[str, Any], custom_id: str) -> str:
    buttons = _components(objects_at(payload, "message", "components"), DEEPEST)
    return next((text_at(button, "label") for button in buttons if button.get("custom_id") == custom_id), "")


def _components(components: list[dict[str, Any]], depth: int) -> Iterator[dict[str, Any]]:
    """All of them, also those in rows, in containers, and beside a section's text."""
    for each in components if depth else ():
        yield each
        yield from _components([*objects_at(each, "components"), object_at(each, "accessory")], depth - 1)


def _command(payload: dict[str, Any]) -> str:
    """As a person would write it: `/ask how are you`, or `/book from:Rome to:Oslo` if there are several options."""
    data = object_at(payload, "data")
    path, options = [f"/{text_at(data, 'name')}"], objects_at(data, "options")
    # A group, then a command of it: each stands in the options of the one before.
    while len(options) == 1 and options[0].get("type") in (1, 2) and len(path) < 3:
        path, options = [*path, text_at(options[0], "name")], objects_at(options[0], "options")
    values = [(text_at(option, "name"), _value(option)) for option in options if option.get("type") != ATTACHED]
    words = [value if len(values) == 1 else f"{name}:{value}" for name, value in values]
    chosen = text_at(_resolved(payload, "messages").get(text_at(data, "target_id")), "content")
    return " ".join(filter(None, [*path, *words, chosen]))


def _value(option: dict[str, Any]) -> str:
    value = option.get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else ""
    mention = MENTIONS.get(integer_at(option, "type"))
    return mention.format(value) if mention else str(value)


def _filled_in(payload: dict[str, Any]) -> Iterator[str]:
    """A form's fields, one line for each; a field stands in a row, or under a label. Of uploaded files, which are
    attachments, it has only the ids."""
    for row in objects_at(payload, "data", "components"):
        for field in [*objects_at(row, "components"), object_at(row, "component")]:
            if field.get("type") != UPLOAD:
                yield from filter(None, [text_at(field, "value"), *texts_at(field, "values")])


def _files(payload: dict[str, Any]) -> tuple[Attachment, ...]:
    return tuple(attachment_of(file, False) for file in _resolved(payload, "attachments").values())


def _resolved(payload: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {id: each for id, each in object_at(payload, "data", "resolved", kind).items() if isinstance(each, dict)}


def _is_notice(payload: dict[str, Any]) -> bool:
    """Whether it is one of the "webhook events", which share the URL's form but want an empty answer."""
    return payload.get("type") == 0 or "event" in payload


def _is_signed(key: VerifyKey, signed: bytes, signature: bytes) -> bool:
    try:
        key.verify(signed, signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def _key(name: str, text: bytes) -> bytes:
    if not _KEY.fullmatch(text):
        raise ConfigurationError(f"TURNTAKE_DISCORD_{name} is not 64 hexadecimal digits: copy it anew.")
    return bytes.fromhex(text.decode())
