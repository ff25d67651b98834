"""The JSON edge: camelCase names and RFC 3339 instants outside, snake_case and milliseconds inside."""

from typing import Any

import msgspec

from turntake.instants import rfc3339
from turntake.rules.deadline import Decision
from turntake.rules.message import Message


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def outward(facts: dict[str, Any]) -> dict[str, Any]:
    """The same facts as JSON shows them: every name in camelCase, every `…_at` an instant."""
    return {
        camel(name): rfc3339(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in facts.items()
    }


def message_view(message: Message, platform: str) -> dict[str, Any]:
    """A message as events and the API show it. `timestamp` is the platform's time, or ours where it gave none."""
    return outward(
        {
            "id": message.id,
            "seq": message.seq,
            "sender": message.sender,
            "text": message.text,
            "timestamp": rfc3339(message.received_at if message.sent_at is None else message.sent_at),
            "received_at": message.received_at,
            "attachments": msgspec.to_builtins(message.attachments),
            "reply_to": message.reply_to,
            "platform": platform,
            "metadata": message.metadata,
        }
    )


def decision_view(decision: Decision) -> dict[str, Any]:
    return {"at": rfc3339(decision.at), "dueAt": rfc3339(decision.due_at), "reason": decision.reason}
