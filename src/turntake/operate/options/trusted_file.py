"""Whether a file is ours: nobody else may have written what we do, or read what we keep secret."""

import os
import stat
import sys
from pathlib import Path


def why_not_ours(path: Path) -> str:
    """Why somebody else may have written the file, in words that end a sentence; "" if only we or root can have."""
    if sys.platform == "win32":
        return ""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    # Where every user has a group of their own, files are writable by that group as they are made.
    is_group_open = status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()
    return "others may write it" if status.st_mode & stat.S_IWOTH or is_group_open else ""


def why_not_private(path: Path) -> str:
    """Why somebody else may know what is in the file, in the same words; "" if only we or root can."""
    if why := why_not_ours(path):
        return why
    is_open = sys.platform != "win32" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return "others may read it" if is_open else ""
