"""Where the settings' values come from: flags, the environment, the TOML file, a preset, the defaults."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_origin

import msgspec

from turntake.errors import ConfigurationError
from turntake.operate.settings import BY_ENV, BY_KEY, PREFIX, SECTIONS, SETTINGS, Given, Setting, Settings, allowed
from turntake.rules.waiting import PRESETS, Rules

CONFIG_FILE = "turntake.toml"
LATER = "comes in a later release; remove it for now"
LATER_KEYS = frozenset({"rules.priority", "rules.on_stale"})
LATER_SCOPES = frozenset({"platform", "tenant", "agent", "conversation"})
LATER_VALUES = frozenset({("rules.on_busy", "steer"), ("rules.on_busy", "reject")})
LATER_CHANNELS = ("WHATSAPP", "MESSENGER", "INSTAGRAM", "TWILIO", "TELEGRAM", "SLACK", "DISCORD")


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
    given = dict(_from_file(path)) if path else {}
    given |= _from_environment(environ)
    for key, text in (flags or {}).items():
        if text is not None:
            given[key] = Given(_converted(BY_KEY[key], text, f"in {BY_KEY[key].flag}"), BY_KEY[key].flag)
    settings = Settings(MappingProxyType(_filled(given)), path, _odd_names(environ))
    try:
        _ = settings.rules
    except ValueError as error:
        raise ConfigurationError(f"rules: {error}") from None
    return settings


def _filled(given: Mapping[str, Given]) -> dict[str, Given]:
    """Every setting: as given, or by the preset, or by default."""
    preset = given["rules.preset"].value if "rules.preset" in given else ""
    filled = {s.key: given.get(s.key) or Given(s.default, "default", is_set=False) for s in SETTINGS}
    if preset:
        for name in Rules.__struct_fields__:
            value, key = getattr(PRESETS[preset], name), f"rules.{name}"
            if key not in given and value != BY_KEY[key].default:
                filled[key] = Given(value, f"preset {preset}", is_set=False)
    return filled


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    given = {}
    for setting in SETTINGS:
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
        return " ".join(Path(path).read_text().split())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} = {path}: the file cannot be read ({_why(error)}).") from None


def _odd_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    names = sorted(name for name in environ if name.startswith(PREFIX) and name not in BY_ENV)
    return tuple(_odd_name(name) for name in names)


def _odd_name(name: str) -> str:
    key = name.removeprefix(PREFIX)
    if key.startswith(LATER_CHANNELS) or key.replace("_", ".", 1).lower() in LATER_KEYS:
        return f"{name} is ignored: it {LATER}."
    return f"{name} is ignored: there is no such setting{_suggestion(name, BY_ENV)}"


def _from_file(path: Path) -> dict[str, Given]:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        hint = "; `turntake init` writes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(f"{path} cannot be read ({_why(error)}){hint}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}.") from None
    return {
        setting.key: Given(_converted(setting, value, f"in {path}", is_typed=True), str(path))
        for key, value in _flattened(table, path)
        for setting in [_known(key, path)]
    }


def _flattened(table: Mapping[str, Any], path: Path) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in table.items():
        if not isinstance(value, dict):
            flat.append((name, value))
        elif name in SECTIONS:
            flat += [(f"{name}.{inner}", inner_value) for inner, inner_value in value.items()]
        elif name in BY_KEY:
            raise ConfigurationError(f"[{name}] in {path}: `{name}` is a single value, written {name} = ...")
        else:
            raise ConfigurationError(f"[{name}] in {path}: there is no such section{_suggestion(name, SECTIONS)}")
    return flat


def _known(key: str, path: Path) -> Setting:
    section, _, name = key.rpartition(".")
    if key in LATER_KEYS:
        raise ConfigurationError(f"{key} in {path}: {LATER}.")
    if section == "rules" and name in LATER_SCOPES:
        raise ConfigurationError(f"[{key}.…] in {path}: rules for one {name} {LATER.replace('comes', 'come', 1)}.")
    if key not in BY_KEY:
        near = [s.key for s in SETTINGS if not s.is_secret]
        raise ConfigurationError(f"{key} in {path}: there is no such setting{_suggestion(key, near)}")
    setting = BY_KEY[key]
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
    if get_origin(setting.type) is tuple:
        return tuple(value.replace(",", " ").split())
    try:
        return msgspec.convert(value, setting.type, strict=is_typed)
    except msgspec.ValidationError:
        shown = "…" if setting.is_secret else msgspec.json.encode(value, enc_hook=str).decode()
        raise ConfigurationError(f"{setting.key} = {shown} {where}: expected {allowed(setting)}.") from None


def _why(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else type(error).__name__
