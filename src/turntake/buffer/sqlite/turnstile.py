"""Who of several processes writes next: whoever waits goes before whoever has just written.

SQLite itself has no order: a process that writes all the time begins anew the moment it is done, and another may try
for seconds without ever meeting a free file. So each begins its transactions behind a turnstile, a lock on the
write-ahead log that SQLite does not use itself. Whoever waits for the file stands in it meanwhile, and nobody else can
begin before that one does.
"""

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # a system without it has no order, as before
    fcntl = None  # type: ignore[assignment]
else:
    _LOCK = fcntl.LOCK_EX | fcntl.LOCK_NB


class Turnstile:
    """Order among processes that are well. It locks nothing: one that is stopped in it is passed by."""

    def __init__(self, log: Path) -> None:
        """`log` is there for as long as anybody has the database open."""
        self._handle = os.open(log, os.O_RDONLY)
        self._is_in = False

    def close(self) -> None:
        os.close(self._handle)

    def enter(self) -> bool:
        """Whether we stand in it now."""
        if fcntl is None or self._is_in:
            return True
        try:
            fcntl.flock(self._handle, _LOCK)
        except OSError:
            return False
        self._is_in = True
        return True

    def leave(self) -> None:
        if self._is_in:
            self._is_in = False
            fcntl.flock(self._handle, fcntl.LOCK_UN)
