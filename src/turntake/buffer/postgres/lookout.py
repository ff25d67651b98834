"""When a worker looks at the deadlines next, if others share them with it.

How this works: a look reads the deadlines of the next horizon, in order, and finds the first that this worker has to
wake for. That is one of which it is the first watcher, or one that is past and that its first watcher did not take yet:
the second and the third watcher, who hear of it by its hint, come later by a step each. A step is longer here than in
`rules/watch.py`, since a claim is two round trips and a commit: whoever came earlier would only find the row locked.
What is overdue by more is everybody's, whoever looks.
"""

from collections.abc import Sequence

from turntake.rules.watch import STAGGER_MS, WATCHERS, Place, wake_at

STEP_MS = 100  # several times what a claim takes on a busy server
EVERYBODYS_MS = WATCHERS * STEP_MS


def look_at(place: Place, due_ats: Sequence[int], now: int) -> int | None:
    """`due_ats` are the earliest deadlines, in order. None if none of them is this worker's."""
    for due_at in due_ats:
        if due_at + EVERYBODYS_MS <= now:
            return due_at
        woken_at = wake_at(place, 0, 1, due_at)
        if woken_at is not None and (woken_at == due_at or due_at <= now):
            return due_at + (woken_at - due_at) // STAGGER_MS * STEP_MS
    return None
