"""How far a listing of conversations has come."""

from typing import NamedTuple, Self

from turntake.clock import NEVER
from turntake.rules.key import ConversationKey


class Cursor(NamedTuple):
    """Everything up to this deadline (None: an idle conversation, which come last) and, of one deadline, this key."""

    due_at: int | None
    key: str

    @classmethod
    def parse(cls, written: str) -> Self:
        """The cursor behind a word. Raises ValueError unless `str()` gives the same word again."""
        kind, _, rest = written.partition("-")
        due_at, _, key = rest.partition("-") if kind == "due" else ("", "", rest)
        is_time = due_at.isdecimal() and int(due_at) < NEVER
        if kind not in ("due", "idle") or (kind == "due" and not is_time):
            raise ValueError("This cursor comes from no listing.")
        ConversationKey.parse(key)
        return cls(int(due_at) if kind == "due" else None, key)

    def __str__(self) -> str:
        return f"idle-{self.key}" if self.due_at is None else f"due-{self.due_at}-{self.key}"
