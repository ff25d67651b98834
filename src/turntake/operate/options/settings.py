"""One setting: its name, type, default and sentence, and how it is called as a flag, in the environment and in TOML.

The settings are read off structs. A struct is a section of turntake.toml, a field of it is a setting, and the field's
`msgspec.Meta` has the sentence and the limits: see `settings_of`.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

import msgspec

from turntake.buffer.open import SCHEME
from turntake.rules import field_checks

PREFIX = "TURNTAKE_"
SECRET = {"is_secret": True}
"""`msgspec.Meta(extra=SECRET)` marks a field as a secret."""
_PASSWORD = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)", re.IGNORECASE)


def env_of(key: str) -> str:
    """What the environment calls a setting: `rules.silence_ms` is TURNTAKE_RULES_SILENCE_MS there."""
    return PREFIX + key.replace(".", "_").replace("-", "_").upper()


class Setting(NamedTuple):
    """One thing that can be set. A secret has neither a flag nor a TOML name."""

    section: str
    name: str
    type: Any
    default: Any
    sentence: str
    is_secret: bool = False

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def env(self) -> str:
        return env_of(self.key)

    @property
    def flag(self) -> str:
        return "" if self.is_secret else "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def has_spaces(self) -> bool:
        """Whether it is a list whose items may hold spaces, so that only commas separate them."""
        return any((note.extra or {}).get("has_spaces") for note in field_checks.notes_of(self.type))

    @property
    def env_names(self) -> tuple[str, ...]:
        """Where the environment may hold it: a secret also as the path of a file that does."""
        return (self.env, f"{self.env}_FILE") if self.is_secret else (self.env,)


def settings_of(group: type[msgspec.Struct], section: str = "") -> Iterator[Setting]:
    """A setting for every field that has a sentence; a field whose type is a struct is a section, and is entered."""
    types = get_type_hints(group, include_extras=True)
    for field in msgspec.structs.fields(group):
        kind = types[field.name]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from settings_of(kind, field.name)
        notes = [note for note in field_checks.notes_of(kind) if note.description]
        if notes:
            (note,) = notes
            yield Setting(section, field.name, kind, field.default, str(note.description), note.extra == SECRET)


def allowed(setting: Setting) -> str:
    """What a value may be, in words."""
    return field_checks.allowed(setting.name, setting.type)


def shown(setting: Setting, value: Any) -> str:
    """The value as people may see it: no secret, and no password inside a URL."""
    if setting.is_secret:
        return f"set ({len(value)})" if isinstance(value, tuple) and value else "set" if value else "not set"
    if isinstance(value, str):
        return without_password(value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def without_password(url: str) -> str:
    """The URL without its password and query, which may hold one too, or libpq's `password=…` without its value.

    A password may hold any character, and somebody may have forgotten to escape it: all up to the last `@` goes.
    """
    scheme = SCHEME.match(url)
    start, rest = (scheme[0], url[scheme.end() :]) if scheme else ("", _PASSWORD.sub(r"\1…", url))
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0] + ":…" if ":" in user else user
    bare, question, _ = f"{name}{at}{host}".partition("?")
    return f"{start}{bare}{question}" + ("…" if question else "")
