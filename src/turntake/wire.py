"""The JSON edge: camelCase names and RFC 3339 instants outside, snake_case and milliseconds inside."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from turntake.rules.deadline import Decision
from turntake.rules.message import Message


def instant(at: int) -> str:
    """`2026-11-15T09:30:00.250Z`"""
    return f"{_second(at // 1000)}.{at % 1000:03d}Z"


@lru_cache(1_024)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:-6]


def milliseconds(written: str) -> int:
    """The instant behind an RFC 3339 text. Raises ValueError if it is none, or names no time zone."""
    parsed = datetime.fromisoformat(written)
    if parsed.tzinfo is None:
        raise ValueError("An instant needs its time zone, for example 2026-11-15T09:30:00.250Z.")
    return round(parsed.timestamp() * 1000)


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def outward(facts: dict[str, Any]) -> dict[str, Any]:
    """The same facts as JSON shows them: every name in camelCase, every `…_at` an instant."""
    return {
        camel(name): instant(value) if name.endswith("_at") and isinstance(value, int) else value
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
            "timestamp": instant(message.received_at if message.sent_at is None else message.sent_at),
            "received_at": message.received_at,
            "attachments": msgspec.to_builtins(message.attachments),
            "reply_to": message.reply_to,
            "platform": platform,
            "metadata": message.metadata,
        }
    )


def decision_view(decision: Decision) -> dict[str, Any]:
    return {"at": instant(decision.at), "dueAt": instant(decision.due_at), "reason": decision.reason}
