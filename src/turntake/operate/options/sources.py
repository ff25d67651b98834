"""Where the settings' values come from: flags, the environment, the TOML file, a preset, the defaults."""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_origin

import msgspec

from turntake.errors import ConfigurationError
from turntake.operate.accounts import Named, named, unnamed, unusable
from turntake.operate.options.settings import (
    BY_ENV,
    BY_KEY,
    CHANNELS,
    PREFIX,
    SECTIONS,
    SETTINGS,
    Given,
    Setting,
    Settings,
    allowed,
)
from turntake.rules.rules import PRESETS, Rules

CONFIG_FILE = "turntake.toml"
LATER = "comes in a later release; remove it for now"
LATER_KEYS = frozenset({"rules.priority", "rules.on_stale"})
LATER_SCOPES = frozenset({"platform", "tenant", "agent", "conversation"})
LATER_VALUES = frozenset({("rules.on_busy", "steer"), ("rules.on_busy", "reject")})


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings from everywhere. `flags` are by key; without `config`, ./turntake.toml is read if it exists.

    Raises ConfigurationError that names the setting, where its value came from, and what is allowed.
    """
    environ = os.environ if environ is None else environ
    path = config or (Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None)
    written = _read(path) if path else Written(Path())
    given = _from_file(written) | _from_environment(SETTINGS, environ) | _from_flags(flags or {})
    accounts = named(given)
    given |= _from_accounts(written, accounts) | _from_environment(accounts.settings, environ)
    odd = (*written.ignored, *_odd_names(environ, accounts))
    settings = Settings(MappingProxyType(_filled(given, accounts.settings)), path, odd, accounts.settings)
    try:
        _ = settings.rules
    except ValueError as error:
        raise ConfigurationError(f"rules: {error}") from None
    return settings


def _filled(given: Mapping[str, Given], of_accounts: Iterable[Setting]) -> dict[str, Given]:
    """Every setting: as given, or by the preset, or by default."""
    preset = given["rules.preset"].value if "rules.preset" in given else ""
    filled = {s.key: given.get(s.key) or Given(s.default, "default", is_set=False) for s in (*SETTINGS, *of_accounts)}
    if preset:
        for name in Rules.__struct_fields__:
            value, key = getattr(PRESETS[preset], name), f"rules.{name}"
            if key not in given and value != BY_KEY[key].default:
                filled[key] = Given(value, f"preset {preset}", is_set=False)
    return filled


def _from_flags(flags: Mapping[str, str | None]) -> dict[str, Given]:
    return {
        key: Given(_converted(BY_KEY[key], text, f"in {BY_KEY[key].flag}"), BY_KEY[key].flag)
        for key, text in flags.items()
        if text is not None
    }


def _from_environment(settings: Iterable[Setting], environ: Mapping[str, str]) -> dict[str, Given]:
    given = {}
    for setting in settings:
        present = [name for name in setting.env_names if environ.get(name)]
        if len(present) > 1:
            raise ConfigurationError(f"{' and '.join(present)} are both set: unset one of them.")
        if present:
            (name,) = present
            text = _read_secret(name, environ[name]) if name != setting.env else environ[name]
            given[setting.key] = Given(_converted(setting, text, f"in {name}"), name)
    return given


def _read_secret(name: str, path: str) -> str:
    try:
        return ",".join(" ".join(line.split()) for line in Path(path).read_text().splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} = {path}: the file cannot be read ({_why(error)}).") from None


def _odd_names(environ: Mapping[str, str], accounts: Named) -> tuple[str, ...]:
    known = BY_ENV.keys() | {env for setting in accounts.settings for env in setting.env_names}
    names = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    return tuple(f"{name} is ignored: {_why_ignored(name)}" for name in names)


def _why_ignored(name: str) -> str:
    if name.removeprefix(PREFIX).replace("_", ".", 1).lower() in LATER_KEYS:
        return f"it {LATER}."
    why = unusable(name) or unnamed(name)
    return why or f"there is no such setting{_suggestion(name, BY_ENV)}"


class Written(NamedTuple):
    """What a file says: single values by key, the tables of accounts, and what was left out."""

    path: Path
    values: Sequence[tuple[str, Any]] = ()
    accounts: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    ignored: Sequence[str] = ()


def _read(path: Path) -> Written:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        hint = "; `turntake init` writes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(f"{path} cannot be read ({_why(error)}){hint}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}.") from None
    return _flattened(table, path)


def _flattened(table: Mapping[str, Any], path: Path) -> Written:
    values: list[tuple[str, Any]] = []
    accounts: list[tuple[str, str, Mapping[str, Any]]] = []
    ignored: list[str] = []
    for name, value in table.items():
        if not isinstance(value, dict):
            values.append((name, value))
        elif name in CHANNELS and CHANNELS[name].fault:
            ignored.append(f"[{name}] in {path} is ignored: {CHANNELS[name].fault}")
        elif name in SECTIONS:
            for inner, held in value.items():
                is_account = isinstance(held, dict) and name in CHANNELS and f"{name}.{inner}" not in BY_KEY
                accounts += [(name, inner, held)] if is_account else []
                values += [] if is_account else [(f"{name}.{inner}", held)]
        else:
            raise ConfigurationError(_no_section(name, path))
    return Written(path, values, accounts, ignored)


def _no_section(name: str, path: Path) -> str:
    if name in BY_KEY:
        return f"[{name}] in {path}: `{name}` is a single value, written {name} = ..."
    return f"[{name}] in {path}: there is no such section{_suggestion(name, SECTIONS)}"


def _from_file(written: Written) -> dict[str, Given]:
    return dict(_as_given(key, value, SETTINGS, written.path) for key, value in written.values)


def _from_accounts(written: Written, accounts: Named) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for channel, name, table in written.accounts:
        accounts.refuse_unknown(channel, name, f"in {written.path}")
        for inner, value in table.items():
            key, found = _as_given(f"{channel}.{name}.{inner}", value, accounts.settings, written.path)
            given[key] = found
    return given


def _as_given(key: str, value: Any, settings: Sequence[Setting], path: Path) -> tuple[str, Given]:
    setting = _known(key, settings, path)
    return key, Given(_converted(setting, value, f"in {path}", is_typed=True), str(path))


def _known(key: str, settings: Sequence[Setting], path: Path) -> Setting:
    section, _, name = key.rpartition(".")
    if key in LATER_KEYS:
        raise ConfigurationError(f"{key} in {path}: {LATER}.")
    if section == "rules" and name in LATER_SCOPES:
        raise ConfigurationError(f"[{key}.…] in {path}: rules for one {name} {LATER.replace('comes', 'come', 1)}.")
    setting = next((setting for setting in settings if setting.key == key), None)
    if setting is None:
        near = [s.key for s in settings if not s.is_secret]
        raise ConfigurationError(f"{key} in {path}: there is no such setting{_suggestion(key, near)}")
    if setting.is_secret:
        raise ConfigurationError(
            f"{key} in {path}: secrets do not belong in this file; set {setting.env}, or {setting.env}_FILE to a path."
        )
    return setting


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else "; `turntake doctor` lists them all."


def _converted(setting: Setting, value: Any, where: str, *, is_typed: bool = False) -> Any:
    """The value in its type. Flags and the environment hold texts; TOML has types of its own, which must fit."""
    if isinstance(value, str) and (setting.key, value) in LATER_VALUES:
        raise ConfigurationError(f'{setting.key} = "{value}" {where}: "{value}" {LATER}.')
    if get_origin(setting.type) is tuple and not is_typed:
        return tuple(value.replace(",", " ").split())
    if is_typed and isinstance(value, int) and setting.section.partition(".")[0] in CHANNELS:
        # Whatever a channel is told is a text to it; in the file, ids may well be numbers and switches true.
        value = str(value).lower()
    try:
        return msgspec.convert(value, setting.type, strict=is_typed)
    except msgspec.ValidationError:
        shown = "…" if setting.is_secret else msgspec.json.encode(value, enc_hook=str).decode()
        raise ConfigurationError(f"{setting.key} = {shown} {where}: expected {allowed(setting)}.") from None


def _why(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else type(error).__name__
