"""The key that a server makes at its first start if none is set, and keeps beside its store.

Programs of this user on this machine read it there: every `turntake` command does.
"""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from turntake.operate.options.trusted_file import why_not_private

SQLITE = "sqlite:///"
ELSEWHERE = Path("turntake.key")
"""For a store that is no file: in the folder where the server was started, as turntake.toml is."""
KEY_BYTES = 32


class MadeKeyFile(NamedTuple):
    """A key and where it is kept; `is_new` if it was made just now, `path` None if it could not be kept."""

    key: str
    path: Path | None
    is_new: bool


def path_for(store: str) -> Path:
    """Where the key of this store's servers is kept."""
    name = store.removeprefix(SQLITE)
    return Path(f"{name}.key") if name and name != store else ELSEWHERE


def find_key(store: str) -> str:
    """The key that a server of this store made, or "" if there is none that can be read and is ours."""
    path = path_for(store)
    try:
        return "" if why_not_private(path) else path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def make_key(store: str) -> MadeKeyFile:
    """The key of this store's servers; the first of them makes it. Two that start at once agree on one."""
    path = path_for(store)
    if found := find_key(store):
        return MadeKeyFile(found, path, is_new=False)
    key = secrets.token_urlsafe(KEY_BYTES)
    try:
        _write(path, key)
    except FileExistsError:
        found = find_key(store)
        return MadeKeyFile(found, path, is_new=False) if found else MadeKeyFile(key, None, is_new=True)
    except OSError:
        return MadeKeyFile(key, None, is_new=True)
    return MadeKeyFile(key, path, is_new=True)


def _write(path: Path, key: str) -> None:
    """Writes a file that only we can read, whole or not at all. Raises FileExistsError if there is one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{key}\n")
        os.link(temporary, path)
    finally:
        with suppress(OSError):
            os.unlink(temporary)
