"""What Slack sends as forms: slash commands, pressed buttons, chosen menus. Pure."""

from collections.abc import Iterator
from typing import Any

from turntake.platforms.channel import ChatEvent
from turntake.platforms.loose_json import object_at, objects_at, read_object, text_at, time_in
from turntake.platforms.slack.content import ignored, is_group, thread_of

PRESSED = frozenset({"block_actions", "interactive_message"})


def form_events(form: dict[str, str]) -> list[ChatEvent]:
    if "payload" in form:
        return _interaction(read_object(form["payload"], "Slack"))
    if "command" in form:
        return [_command(form)]
    return [] if "ssl_check" in form else [ChatEvent(kind="unsupported", account=form.get("team_id", ""))]


def _command(form: dict[str, str]) -> ChatEvent:
    """What a person typed, with the command's name before it."""
    channel = form.get("channel_id", "")
    words = f"{form['command']} {form.get('text', '')}".strip()
    return ChatEvent(
        kind="message" if channel else "unsupported",
        account=form.get("team_id") or form.get("enterprise_id", ""),
        conversation=channel,
        sender=form.get("user_id", ""),
        id=form.get("trigger_id", ""),
        text=words,
        is_group=is_group(channel, ""),
        metadata={"command": form["command"]},
    )


def _interaction(payload: dict[str, Any]) -> list[ChatEvent]:
    kind = text_at(payload, "type")
    if kind not in PRESSED:
        return [ChatEvent(kind=ignored(kind), account=text_at(payload, "team", "id"))]
    return [_press(payload, action) for action in objects_at(payload, "actions")]


def _press(payload: dict[str, Any], action: dict[str, Any]) -> ChatEvent:
    """A button or a menu on a message. On a page of the app there is no conversation to answer in."""
    post, container = object_at(payload, "message"), object_at(payload, "container")
    conversation = text_at(payload, "channel", "id") or text_at(container, "channel_id")
    pressed_on = text_at(post, "ts") or text_at(container, "message_ts") or text_at(payload, "message_ts")
    pressed_at = text_at(action, "action_ts") or text_at(payload, "action_ts")
    return ChatEvent(
        kind="postback" if conversation else "unsupported",
        account=text_at(payload, "team", "id") or text_at(payload, "enterprise", "id"),
        conversation=conversation,
        sender=text_at(payload, "user", "id"),
        id=pressed_at or text_at(payload, "trigger_id"),
        text="\n".join(_chosen(action)) or text_at(action, "value") or _name(action),
        sent_at=time_in(pressed_at),
        reply_to=pressed_on or None,
        thread=thread_of(post or {"ts": pressed_on, **container}),
        is_group=is_group(conversation, ""),
        metadata={"payload": text_at(action, "value"), "action": _name(action)},
    )


def _chosen(action: dict[str, Any]) -> Iterator[str]:
    """The labels a person saw and pressed; for a date, a time or a person, what was picked."""
    options = [action, object_at(action, "selected_option"), *objects_at(action, "selected_options")]
    for option in options:
        yield from filter(None, [text_at(option, "text", "text")])
    picked = ("date", "time", "user", "channel", "conversation")
    yield from filter(None, (text_at(action, f"selected_{kind}") for kind in picked))


def _name(action: dict[str, Any]) -> str:
    return text_at(action, "action_id") or text_at(action, "name")
