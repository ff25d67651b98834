"""Every setting once: its name, type, default and one sentence. Flags, environment, TOML and docs come from here.

Each installed channel is a section, and its options are the settings there. A value comes from the first of:
a flag, the environment, the TOML file, a preset, the default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from turntake.buffer.open import SCHEME
from turntake.clock import DAY_MS
from turntake.operate.channel_plugins import channels
from turntake.platforms.channel import Option
from turntake.rules.rules import PRESETS, Milliseconds, Rules
from turntake.service import DEFAULT_STORE, Role

PREFIX = "TURNTAKE_"
_PASSWORD = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)", re.IGNORECASE)

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Lease = Annotated[int, msgspec.Meta(ge=100, le=DAY_MS)]
Kept = Annotated[int, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=1_024, le=64 * 1_048_576)]
Wait = Annotated[int, msgspec.Meta(ge=1, le=DAY_MS)]


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
        return PREFIX + self.key.replace(".", "_").replace("-", "_").upper()

    @property
    def flag(self) -> str:
        return "" if self.is_secret else "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def env_names(self) -> tuple[str, ...]:
        """Where the environment may hold it: a secret also as the path of a file that does."""
        return (self.env, f"{self.env}_FILE") if self.is_secret else (self.env,)


_RULES = {
    "enabled": "Off: every message is a turn of its own, at once.",
    "silence_ms": "How long a person must be silent before their turn is due.",
    "typing_inference_ms": "The silence after messages in quick succession, which mean that the person goes on.",
    "max_wait_ms": "The longest wait, counted from a turn's first message.",
    "min_messages": "Fewer messages than this wait until `max_wait_ms`.",
    "max_messages": "So many messages are due at once.",
    "capacity": "The most messages that a buffer holds before it is due whatever the other rules say.",
    "window_ms": "Instead of waiting for silence, collect for this long from the first message (0 = off).",
    "activity_ms": "How much longer to wait for a person who is seen typing or recording.",
    "ttl_ms": "How long a turn is tried before its messages become a dead letter.",
    "on_busy": "What a message does while its conversation is being answered: wait, or start the answer anew.",
    "max_interrupts": "How often messages may interrupt the answer to one turn.",
    "max_attempts": "How many attempts may fail before the messages become a dead letter.",
}


def _rule_settings() -> tuple[Setting, ...]:
    types = get_type_hints(Rules, include_extras=True)
    return tuple(
        Setting("rules", field.name, types[field.name], field.default, _RULES[field.name])
        for field in msgspec.structs.fields(Rules)
    )


_OWN: tuple[Setting, ...] = (
    Setting(
        "",
        "store",
        str,
        DEFAULT_STORE,
        "Where messages are kept: sqlite:///file.db, redis://..., postgresql://... or memory://.",
    ),
    Setting("", "agent", str, "echo", "Who answers: echo, module:function, module:turns, or an http(s) URL."),
    Setting("", "public_url", str, "", "The address at which others reach this server."),
    Setting("", "host", str, "127.0.0.1", "The address to listen on; other than loopback needs API keys."),
    Setting("", "port", Port, 8080, "The port to listen on; 0 takes a free one."),
    Setting("", "role", Role, "all", "Only accept messages, only work on turns, or both."),
    Setting("", "api_keys", tuple[str, ...], (), "The keys that /v1 accepts, separated by commas.", True),
    Setting("", "agent_secret", str, "", "Signs the requests to an HTTP agent (whsec_...).", True),
    Setting("rules", "preset", Literal["", *sorted(PRESETS)], "", "Rules to start from; those set below override it."),
    *_rule_settings(),
    Setting("worker", "concurrency", Slots, 100, "How many turns are answered at the same time."),
    Setting("worker", "lease_ms", Lease, 60_000, "How long a claim lasts unless the worker extends it."),
    Setting("worker", "shutdown_ms", Milliseconds, 10_000, "How long answers may take to finish when stopping."),
    Setting("history", "keep_ms", Kept, 8 * DAY_MS, "How long settled turns are kept."),
    Setting("http", "body_bytes", Bytes, 1_048_576, "The longest request body that is accepted."),
    Setting("http", "receive_ms", Wait, 10_000, "How long a request body may take to arrive."),
    Setting("http", "drain_ms", Milliseconds, 0, "How long a stopping server still serves while /readyz says 503."),
    Setting("http_agent", "timeout_ms", Wait, 120_000, "How long an HTTP agent may take to respond."),
    Setting("http_agent", "complete_within_ms", Wait, 600_000, "How long an agent that said 202 has to complete."),
    Setting("webhooks", "body_bytes", Bytes, 3_145_728, "The longest webhook body that is accepted."),
    Setting(
        "webhooks",
        "groups",
        Literal["person", "group"],
        "person",
        "In group chats, whether each person's messages or the whole group's wait together.",
    ),
    Setting(
        "replies",
        "on_unknown",
        Literal["resend", "skip"],
        "resend",
        "What to do with a reply whose sending timed out: send it again, or count it as sent.",
    ),
    Setting("replies", "timeout_ms", Wait, 8_000, "How long a platform's API may take."),
    Setting(
        "replies",
        "quote",
        Literal["never", "groups", "always"],
        "groups",
        "When an answer quotes the message it answers, where the platform can.",
    ),
    Setting("replies", "typing", bool, True, "Show a typing indicator while the agent works."),
    Setting("log", "level", Literal["debug", "info", "warning", "error"], "info", "The least that is worth a line."),
    Setting("log", "format", Literal["auto", "text", "json"], "auto", "auto: text on a terminal, else JSON lines."),
)
_ACCOUNTS = "Further accounts: each is served at /webhooks/{0}/NAME with settings of its own."
CHANNELS = MappingProxyType(channels(taken={setting.section or setting.name for setting in _OWN}))


def _channel_settings() -> Iterator[Setting]:
    for name, installed in CHANNELS.items():
        if name == "generic":
            yield Setting(name, "callback_url", str, "", "Where replies to the generic channel are posted.")
        yield from option_settings(name, installed.options)
        if installed.channel:
            yield Setting(name, "accounts", tuple[str, ...], (), _ACCOUNTS.format(name))


def option_settings(section: str, options: Iterable[Option]) -> tuple[Setting, ...]:
    """What can be set for one account; `section` is the channel, or the channel and the account."""
    return tuple(Setting(section, o.name, str, o.default, o.sentence, o.is_secret) for o in options)


SETTINGS: tuple[Setting, ...] = (*_OWN, *_channel_settings())
BY_KEY: Mapping[str, Setting] = MappingProxyType({setting.key: setting for setting in SETTINGS})
BY_ENV: Mapping[str, Setting] = MappingProxyType({env: s for s in SETTINGS for env in s.env_names})
SECTIONS = tuple(dict.fromkeys(setting.section for setting in SETTINGS if setting.section))


class Given(NamedTuple):
    """A value and where it came from; `is_set` unless it is the default's or a preset's."""

    value: Any
    origin: str
    is_set: bool = True


class Settings(NamedTuple):
    """All settings, each with its origin, and what is odd about them."""

    given: Mapping[str, Given]
    config: Path | None = None
    warnings: tuple[str, ...] = ()
    of_accounts: tuple[Setting, ...] = ()

    @property
    def table(self) -> tuple[Setting, ...]:
        """Everything that can be set here: what always can, and what the named accounts add."""
        return SETTINGS + self.of_accounts

    def __call__(self, key: str) -> Any:
        return self.given[key].value

    def is_set(self, key: str) -> bool:
        return self.given[key].is_set

    @property
    def rules(self) -> Rules:
        return Rules(**{name: self(f"rules.{name}") for name in Rules.__struct_fields__})


def allowed(setting: Setting) -> str:
    """What a value may be, in words."""
    kind, *notes = get_args(setting.type) if get_origin(setting.type) is Annotated else (setting.type,)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{value}"' for value in get_args(kind) if value)
    if kind is bool:
        return "true or false"
    if kind is not int:
        return "a list of texts" if get_origin(kind) is tuple else "a text"
    units = {"_ms": " of milliseconds", "_bytes": " of bytes"}
    unit = next((word for ending, word in units.items() if setting.name.endswith(ending)), "")
    bounds = [note for note in notes if isinstance(note, msgspec.Meta)]
    return f"an integer{unit}" + "".join(map(_range, bounds))


def _range(bounds: msgspec.Meta) -> str:
    return f", {bounds.ge} or more" if bounds.le is None else f" from {bounds.ge} to {bounds.le}"


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
    found = SCHEME.match(url)
    start, rest = (found[0], url[found.end() :]) if found else ("", _PASSWORD.sub(r"\1…", url))
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0] + ":…" if ":" in user else user
    bare, question, _ = f"{name}{at}{host}".partition("?")
    return f"{start}{bare}{question}" + ("…" if question else "")
