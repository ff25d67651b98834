"""The JSON edge: camelCase names and RFC 3339 instants outside, snake_case and milliseconds inside."""

from typing import Any

from turntake.instants import rfc3339


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def outward(facts: dict[str, Any]) -> dict[str, Any]:
    """The same facts as JSON shows them: every name in camelCase, every `…_at` an instant."""
    return {
        camel(name): rfc3339(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in facts.items()
    }
