"""The shapes of an answer that Python and HTTP agents share: `{"reply": …}` and `{"replies": […]}`. Pure."""

from typing import Any

from turntake.errors import GiveUp

BOTH = "The agent's answer has both `reply` and `replies`; send one of them."


def replies_in_object(answer: Any) -> tuple[str, ...] | None:
    """The replies in an object of either shape; None if it has neither. Raises GiveUp if it has both."""
    match answer:
        case {"reply": _, "replies": _}:
            raise GiveUp(BOTH)
        case {"reply": str(reply)}:
            return (reply,)
        case {"reply": None} | {"replies": None}:
            return ()
        case {"replies": [*replies]} if all(isinstance(reply, str) for reply in replies):
            return tuple(str(reply) for reply in replies)
    return None
