"""A machine whose wall clock is wrong: Python imports this when it starts, if the folder is on its path.

The file named in `CHAOS_CLOCK` has the seconds by which the clock is ahead; no file means none.
"""

import os
import time

_right = time.time


def _stepped() -> float:
    try:
        with open(os.environ["CHAOS_CLOCK"], encoding="ascii") as file:
            return _right() + float(file.read() or 0)
    except (OSError, ValueError):
        return _right()


if "CHAOS_CLOCK" in os.environ:
    time.time = _stepped
