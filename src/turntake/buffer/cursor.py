"""Where a listing of conversations goes on: after a deadline (None: among the idle ones) and a key."""

from turntake.rules.key import ConversationKey

Place = tuple[int | None, str]
LATEST = 2**62


def written(place: Place) -> str:
    """The place as a word for the next request."""
    due_at, key = place
    return f"idle-{key}" if due_at is None else f"due-{due_at}-{key}"


def read(cursor: str) -> Place:
    """The place behind the word. Raises ValueError if `written` does not write it so."""
    kind, _, rest = cursor.partition("-")
    due_at, _, key = rest.partition("-") if kind == "due" else ("", "", rest)
    is_time = due_at.isdecimal() and int(due_at) < LATEST
    if kind not in ("due", "idle") or (kind == "due" and not is_time):
        raise ValueError("This cursor comes from no listing.")
    ConversationKey.parse(key)
    return (int(due_at) if kind == "due" else None), key
