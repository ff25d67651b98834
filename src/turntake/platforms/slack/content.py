"""Slack's posts, part by part. Pure; a part of another shape than Slack's counts as missing."""

from collections.abc import Iterator
from typing import Any

from turntake.platforms.loose_json import named_facts, objects_at, text_at
from turntake.rules.message import Attachment
from turntake.rules.message_limits import ATTACHMENTS

GROUPS = frozenset({"channel", "group", "mpim"})
MEDIA = frozenset({"audio", "image", "video"})
FILE_FACTS = {name: name for name in ("duration_ms", "file_access", "size")}
READ = frozenset({"", "message", "postback", "edit", "delete", "typing", "stopped"})
"""The kinds of event that mean something here, so that nothing unknown may have their names."""


def words_of(post: dict[str, Any]) -> str:
    """The text as Slack writes it, and under it the text of messages that the person shares."""
    return "\n".join(filter(None, [text_at(post, "text"), *_shared_words(post)]))


def _shared_words(post: dict[str, Any]) -> Iterator[str]:
    """Beside words of the person's own, what is not a share is a link's preview, or an app's decoration."""
    has_words = bool(text_at(post, "text"))
    for each in objects_at(post, "attachments"):
        if each.get("is_share") is True or not has_words:
            # Of a message that was only a file, the fallback says no more than that there is no preview of it.
            yield text_at(each, "text") or ("" if each.get("files") else text_at(each, "fallback"))


def attachments_of(post: dict[str, Any]) -> tuple[Attachment, ...]:
    """The files of the message, and those of messages that it shares."""
    shares = [each for each in objects_at(post, "attachments") if each.get("is_share") is True]
    files = [file for source in (post, *shares) for file in objects_at(source, "files")]
    return tuple(_attachment(file) for file in files[:ATTACHMENTS] if file.get("mode") != "tombstone")


def _attachment(file: dict[str, Any]) -> Attachment:
    """A file. Its URL wants the bot token as bearer, and the scope files:read."""
    mime = text_at(file, "mimetype")
    family = mime.partition("/")[0]
    kind = "voice" if file.get("subtype") == "slack_audio" else family if family in MEDIA else "file"
    return Attachment(
        kind=kind,
        url=text_at(file, "url_private_download") or text_at(file, "url_private") or None,
        id=text_at(file, "id") or None,
        mime_type=mime or None,
        name=text_at(file, "name") or None,
        metadata=named_facts(file, FILE_FACTS),
    )


def thread_of(post: dict[str, Any]) -> str:
    """The thread a post is in. One that began a thread later is still where it was posted."""
    thread = text_at(post, "thread_ts")
    return "" if thread == text_at(post, "ts") else thread


def is_group(channel: str, kind: str) -> bool:
    """Whether several people talk there; Slack does not always name the kind, but a direct chat's id begins with D."""
    return kind in GROUPS or (kind != "im" and not channel.startswith("D"))


def ignored(kind: str) -> str:
    """The kind of what is not read here: its own name, but never that of something that is."""
    return "unsupported" if kind in READ else kind
