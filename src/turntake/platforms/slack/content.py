"""Slack's posts, part by part. Pure; a part of another shape than Slack's counts as missing."""

from typing import Any

from turntake.platforms.loose_json import named_facts, objects_at, text_at
from turntake.rules.message import Attachment

GROUPS = frozenset({"channel", "group", "mpim"})
MEDIA = frozenset({"audio", "image", "video"})
FILE_FACTS = {name: name for name in ("duration_ms", "file_access", "size")}
READ = frozenset({"", "message", "postback", "edit", "delete", "typing", "stopped"})
"""The kinds of event that mean something here, so that nothing unknown may have their names."""


def words_of(post: dict[str, Any]) -> str:
    """The text as Slack writes it; of a shared message, which has none of its own, the text that is shared."""
    shared = (text_at(each, "text") or text_at(each, "fallback") for each in objects_at(post, "attachments"))
    return text_at(post, "text") or "\n".join(filter(None, shared))


def attachments_of(post: dict[str, Any]) -> tuple[Attachment, ...]:
    return tuple(_attachment(file) for file in objects_at(post, "files") if file.get("mode") != "tombstone")


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
