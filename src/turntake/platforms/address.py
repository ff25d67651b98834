"""The ids that turntake composes out of a platform's ids, each written and read here and nowhere else. Pure.

A reply finds its way back by what the key and the messages of its conversation say, so what is written when a message
comes in must be read the same way when the answer leaves:

    account       name/own        which of our accounts (`sales`), and its id at the platform (`1065…`)
    topic         thread@person   the thread inside a chat, and in a group the person who has a buffer there
    thread        direct-topic    Telegram: a person's topic in the direct messages of a channel
    chat          connection/chat Telegram: the business account through which the bot speaks, and the chat
    reply         turn-place      a reply on its way: the id of its turn, and its place among the turn's replies
    metadata      "interaction"   Discord: the token that answers a command, sealed; "groupId" WhatsApp: the group

Running installations have keys in these spellings, so they may not change. What could be read in two ways (a thread
with an `@` in it) is escaped: `@` becomes `%40`, and then `%` becomes `%25`. Ordinary ids have no such characters,
and keep their spelling.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

UNNAMED = "default"
"""The account of a conversation whose platform does not say which of our accounts it is."""


DIRECT = "direct-"

_REPLY = re.compile(r"(turn_[0-9a-f]{1,64})-([0-9]{1,6})", re.ASCII)


class AccountAddress(NamedTuple):
    """`name` is that of a configured account, "" for the only or first one; `own_id` is the platform's, or ""."""

    name: str
    own_id: str


class TopicAddress(NamedTuple):
    """`person` is set in a group chat where each person has a buffer."""

    thread: str
    person: str


class ChatAddress(NamedTuple):
    """A chat, and the connection through which a bot speaks in it, or ""."""

    connection: str
    chat: str


class ReplyAddress(NamedTuple):
    """A reply: its turn, and its place among the turn's replies, counted from 0."""

    turn_id: str
    place: int


class Interaction(NamedTuple):
    """What answers a command, a button or a form at Discord. `kind` is the number of Discord's type.

    The token is sealed, except in messages that an earlier release stored.
    """

    token: str
    application_id: str
    kind: int
    is_sealed: bool = True


def write_account(name: str, own_id: str) -> str:
    # The first slash ends our account's name, which never has one, so that no id at the platform can pass for it.
    own_id = own_id or UNNAMED
    return f"{name}/{own_id}" if name or "/" in own_id else own_id


def read_account(account: str) -> AccountAddress:
    name, slash, rest = account.partition("/")
    own_id = rest if slash else name
    return AccountAddress(name if slash else "", "" if own_id == UNNAMED else own_id)


def write_topic(thread: str, person: str) -> str:
    """The first `@` ends the thread, so only a thread has to be escaped. A person's id may have any."""
    return _escaped(thread, "@") + (f"@{person}" if person else "")


def read_topic(topic: str) -> TopicAddress:
    thread, _, person = topic.partition("@")
    return TopicAddress(_unescaped(thread, "@"), person)


def write_chat(connection: str, chat: str) -> str:
    """The last `/` ends the connection, so only a chat has to be escaped."""
    escaped = _escaped(chat, "/")
    return f"{connection}/{escaped}" if connection and chat else escaped


def read_chat(conversation: str) -> ChatAddress:
    connection, _, chat = conversation.rpartition("/")
    return ChatAddress(connection, _unescaped(chat, "/"))


def write_reply(turn_id: str, place: int) -> str:
    return f"{turn_id}-{place}"


def read_reply(reply_id: str) -> ReplyAddress | None:
    """None if it is not one of ours: whoever else sends through the same account may give any."""
    match = _REPLY.fullmatch(reply_id)
    return ReplyAddress(match[1], int(match[2])) if match else None


def write_direct_thread(topic_id: str) -> str:
    """Other threads of Telegram are numbers, so that none begins like this."""
    return f"{DIRECT}{topic_id}"


def read_direct_thread(thread: str) -> str:
    """The topic in a channel's direct messages; "" if the thread is another one."""
    return thread.removeprefix(DIRECT) if thread.startswith(DIRECT) else ""


def write_interaction(interaction: Interaction) -> dict[str, Any]:
    """As metadata of a message."""
    token, application_id, kind, is_sealed = interaction
    name = "sealed_token" if is_sealed else "token"
    return {"interaction": {name: token, "application_id": application_id, "type": kind}}


def read_interaction(metadata: Mapping[str, Any]) -> Interaction | None:
    """The interaction that a message came by, if it can be answered."""
    match metadata.get("interaction"):
        case {"sealed_token": str(token), "application_id": str(application_id), **rest} if token and application_id:
            return Interaction(token, application_id, _kind(rest))
        case {"token": str(token), "application_id": str(application_id), **rest} if token and application_id:
            return Interaction(token, application_id, _kind(rest), is_sealed=False)
    return None


def _kind(interaction: Mapping[Any, Any]) -> int:
    kind = interaction.get("type")
    return kind if isinstance(kind, int) else 0


def write_group(group_id: str) -> dict[str, str]:
    """As metadata of a message; nothing outside a group."""
    return {"groupId": group_id} if group_id else {}


def read_group(metadata: Mapping[str, Any]) -> str:
    group_id = metadata.get("groupId")
    return group_id if isinstance(group_id, str) else ""


def _escaped(part: str, mark: str) -> str:
    """The part without `mark`. One that has no mark, and nothing that looks like an escape, stays as it is."""
    if mark not in part and "%" not in part:
        return part
    escapes = {"%": "%25", mark: f"%{ord(mark):02X}"}
    if not any(sign in part for sign in (mark, *escapes.values())):
        return part
    return re.sub(f"[%{mark}]", lambda match: escapes[match[0]], part)


def _unescaped(part: str, mark: str) -> str:
    if "%" not in part:
        return part
    signs = {"%25": "%", f"%{ord(mark):02X}": mark}
    return re.sub("|".join(signs), lambda match: signs[match[0]], part)
