"""Where the options come from: flags, the environment, .env, turntake.toml, a preset, the defaults; the first that has
one.

`load` does all of it. Everything in between is kept by the key of a setting, such as `rules.silence_ms`, with where it
came from; at the end the values become an `Options`.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from turntake.errors import ConfigurationError
from turntake.operate.channel_plugins import GROUP
from turntake.operate.options.catalogue import PRESET, Catalogue, catalogue, option_settings
from turntake.operate.options.env_file import ENV_FILE, Environment, read_environment
from turntake.operate.options.groups import AccountOptions, Options, Sources, Value
from turntake.operate.options.named_accounts import NamedAccounts, named_accounts, unnamed, unusable
from turntake.operate.options.scoped_rules import check_names, is_scope, layers, scoped_settings
from turntake.operate.options.settings import PREFIX, Setting, allowed, without_password
from turntake.operate.options.trusted_file import why_not_ours
from turntake.plugins import probable_typo
from turntake.rules.rules import PRESETS, Rules
from turntake.rules.scopes import RuleScope

CONFIG_FILE = "turntake.toml"


Keys = tuple[str, ...]
"""Where a table stands in the file: () is its top, ("rules",) is [rules], ("slack", "eu") is [slack.eu]."""


Tables = Mapping[Keys, Mapping[str, Any]]


class ConfigFile(NamedTuple):
    """What turntake.toml says: the values in each table that has settings, and what of it is ignored."""

    path: Path
    tables: Tables = MappingProxyType({})
    ignored: Sequence[str] = ()

    @property
    def sections(self) -> Tables:
        return {keys: table for keys, table in self.tables.items() if len(keys) < 2}

    @property
    def accounts(self) -> Tables:
        return {keys: table for keys, table in self.tables.items() if len(keys) == 2 and not is_scope(keys)}

    @property
    def scopes(self) -> Tables:
        """The tables of rules for less than everybody."""
        return {keys: table for keys, table in self.tables.items() if len(keys) > 1 and is_scope(keys)}


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    known: Catalogue | None = None,
) -> Options:
    """The options from everywhere. `flags` are by key; without `config`, ./turntake.toml is read if it exists.

    `known` is what can be set, for whoever has it already. Raises ConfigurationError that names the setting, where its
    value came from, and what is allowed.
    """
    environ = os.environ if environ is None else environ
    known = known or catalogue()
    path, untrusted = (config, ()) if config else _found()
    file = _read(path, known) if path else ConfigFile(Path())
    values = _from_file(file.sections, known.settings, file.path, known)
    spoken = read_environment(environ, Path(ENV_FILE))
    values |= _from_environment(known.settings, spoken) | _from_flags(flags or {}, known)
    named = named_accounts(values, known)
    values |= _from_accounts(file, named, known) | _from_environment(named.settings, spoken)
    check_names(file.scopes, file.path)
    scoped = scoped_settings(file.scopes, known.settings)
    values |= _from_file(file.scopes, scoped, file.path, known)
    settings = (*known.settings, *named.settings, *(setting for setting in scoped if setting.key in values))
    filled = _filled(values, settings)
    _refuse_bad_address(filled["public_url"])
    scopes = layers(file.scopes, filled)
    odd = (*_odd_names(spoken.names, known, named), *_odd_platforms(scopes, file.path))
    warnings = (*untrusted, *file.ignored, *spoken.ignored, *odd)
    return Options(
        **_typed(filled),
        layers=scopes,
        accounts=tuple(_account_options(filled, known, named)),
        sources=Sources(MappingProxyType(filled), path, warnings, settings),
    )


def _found() -> tuple[Path | None, tuple[str, ...]]:
    """The file in the current folder, unless somebody else may have written it: it says where secrets are sent."""
    path = Path(CONFIG_FILE)
    if not path.is_file():
        return None, ()
    if why := why_not_ours(path):
        return None, (f"{path} is ignored, since {why}: make it yours (chown, chmod 644), or name it with --config.",)
    return path, ()


def _typed(values: Mapping[str, Value]) -> dict[str, Any]:
    """The fields of `Options`: single values, and a struct for each section."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(Options):
        if isinstance(field.default, msgspec.Struct):
            names = {name: f"{field.name}.{name}" for name in field.default.__struct_fields__}
            members = {name: values[key].value for name, key in names.items() if key in values}
            try:
                fields[field.name] = type(field.default)(**members)
            except ValueError as error:
                raise ConfigurationError(f"{field.name}: {error}") from None
        elif field.name in values:
            fields[field.name] = values[field.name].value
    return fields


def _account_options(values: Mapping[str, Value], known: Catalogue, named: NamedAccounts) -> Iterator[AccountOptions]:
    """The main account of every installed channel, set or not, each followed by its named ones."""
    for channel, plugin in known.channels.items():
        shared = option_settings(channel, plugin.shared_options)
        home = {option.name for option in plugin.home}
        for name in ("", *named.names[channel]):
            own = option_settings(".".join(filter(None, (channel, name))), plugin.account_options)
            yield AccountOptions(
                plugin,
                name,
                values={setting.name: values[setting.key].value for setting in (*shared, *own)},
                variables={setting.name: setting.env for setting in (*shared, *own)},
                is_set=bool(name) or any(values[s.key].is_set for s in own if s.name not in home),
            )


def _filled(values: Mapping[str, Value], settings: Iterable[Setting]) -> dict[str, Value]:
    """Every setting: as it was set, or by the preset, or by default."""
    filled = {s.key: values.get(s.key) or Value(s.default, "default", is_set=False) for s in settings}
    preset = filled[PRESET.key].value
    if preset:
        for field in msgspec.structs.fields(Rules):
            value, key = getattr(PRESETS[preset], field.name), f"rules.{field.name}"
            if key not in values and value != field.default:
                filled[key] = Value(value, f"preset {preset}", is_set=False)
    return filled


def _from_flags(flags: Mapping[str, str | None], known: Catalogue) -> dict[str, Value]:
    settings = {known.by_key[key]: text for key, text in flags.items() if text is not None}
    return {s.key: Value(_converted(s, text, f"in {s.flag}"), s.flag) for s, text in settings.items()}


def _from_environment(settings: Iterable[Setting], environment: Environment) -> dict[str, Value]:
    values = {}
    for setting in settings:
        present = [name for name in setting.env_names if environment.names.get(name)]
        if len(present) > 1:
            raise ConfigurationError(f"{' and '.join(present)} are both set: unset one of them.")
        if present:
            (name,) = present
            text, origin = environment.names[name], environment.origin(name)
            text = _read_secret(name, text) if name != setting.env else text
            values[setting.key] = Value(_converted(setting, text, f"in {origin}"), origin)
    return values


def _refuse_bad_address(given: Value) -> None:
    """What others are told to call must be an address: without its scheme it would be printed, signed and useless."""
    address: str = given.value
    scheme, is_url, rest = address.partition("://")
    if address and not (is_url and scheme.lower() in ("http", "https") and rest.strip("/")):
        example = f"https://{address}" if not is_url else "https://bot.example"
        shown = without_password(address)
        raise ConfigurationError(
            f'public_url = "{shown}" in {given.origin}: write the whole address with its scheme, such as '
            f"{without_password(example)}."
        )


def _read_secret(name: str, path: str) -> str:
    try:
        return ",".join(" ".join(line.split()) for line in Path(path).read_text().splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} = {path}: the file cannot be read ({_why(error)}).") from None


def _odd_names(environ: Mapping[str, str], known: Catalogue, named: NamedAccounts) -> tuple[str, ...]:
    taken = known.by_env.keys() | {env for setting in named.settings for env in setting.env_names}
    names = sorted(name for name in environ if name.startswith(PREFIX) and name not in taken)
    return tuple(f"{name} is ignored: {_why_ignored(name, known)}" for name in names)


def _odd_platforms(scopes: Iterable[RuleScope], path: Path) -> Iterator[str]:
    """Rules for a platform that is probably misspelled. They are no error: messages may name any channel by the API."""
    for scope in scopes:
        if scope.kind == "platform" and (typo := probable_typo(GROUP, scope.id)):
            yield f"[rules.platform.{scope.id}] in {path}: {typo}"


def _why_ignored(name: str, known: Catalogue) -> str:
    why = unusable(name, known) or unnamed(name, known)
    return why or f"there is no such setting{_suggestion(name, known.by_env)}"


def _read(path: Path, known: Catalogue) -> ConfigFile:
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{path} is not UTF-8 (line {line}): save it in that encoding.") from None
    except OSError as error:
        hint = "; `turntake init` writes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(f"{path} cannot be read ({_why(error)}){hint}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}.") from None
    ignored = []
    for name in [name for name, value in content.items() if isinstance(value, dict) and name not in known.sections]:
        if name not in known.channels:
            raise ConfigurationError(_no_section(name, path, known))
        # A channel without settings is one that cannot be used.
        ignored.append(f"[{name}] in {path} is ignored: {known.channels[name].fault}")
        del content[name]
    return ConfigFile(path, dict(_tables(content, known)), ignored)


def _tables(table: Mapping[str, Any], known: Catalogue, at: Keys = ()) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """This table and those within it, at any depth, each with its own values only."""
    within = {name for name, value in table.items() if isinstance(value, dict) and _is_table((*at, name), known)}
    yield at, {name: value for name, value in table.items() if name not in within}
    for name in table:
        if name in within:
            yield from _tables(table[name], known, (*at, name))


def _is_table(keys: Keys, known: Catalogue) -> bool:
    """Whether settings stand in a table here; anywhere else a table is a value, and the wrong one."""
    match keys:
        case (section,):
            return section in known.sections
        case (channel, account):
            return is_scope(keys) or (channel in known.channels and f"{channel}.{account}" not in known.by_key)
    return is_scope(keys)


def _no_section(name: str, path: Path, known: Catalogue) -> str:
    if name in known.by_key:
        return f"[{name}] in {path}: `{name}` is a single value, written {name} = ..."
    return f"[{name}] in {path}: there is no such section{_suggestion(name, known.sections)}"


def _from_file(tables: Tables, settings: Sequence[Setting], path: Path, known: Catalogue) -> dict[str, Value]:
    values = {}
    for keys, table in tables.items():
        for name, value in table.items():
            key = ".".join((*keys, name))
            setting = _setting(key, settings, path)
            if isinstance(value, int) and keys and keys[0] in known.channels:
                # Whatever a channel is told is a text to it; in the file, ids may well be numbers and switches true.
                value = str(value).lower()
            values[key] = Value(_converted(setting, value, f"in {path}", is_typed=True), str(path))
    return values


def _from_accounts(file: ConfigFile, named: NamedAccounts, known: Catalogue) -> dict[str, Value]:
    for channel, name in file.accounts:
        named.refuse_unknown(channel, name, f"in {file.path}")
    return _from_file(file.accounts, named.settings, file.path, known)


def _setting(key: str, settings: Sequence[Setting], path: Path) -> Setting:
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
    return f"; did you mean {near[0]}?" if near else "; `turntake doctor --all` lists them."


def _converted(setting: Setting, value: Any, where: str, *, is_typed: bool = False) -> Any:
    """The value in its type. Flags and the environment hold texts; TOML has types of its own, which must fit."""
    if not is_typed and _is_list(setting):
        if setting.has_spaces and value.strip().startswith("["):
            raise ConfigurationError(f"{setting.key} {where}: brackets are for TOML; write `@en, halt`, with commas.")
        items = value.split(",") if setting.has_spaces else value.replace(",", " ").split()
        value = tuple(" ".join(item.split()) for item in items if item.strip())
    try:
        return msgspec.convert(value, setting.type, strict=is_typed)
    except msgspec.ValidationError:
        shown = "…" if setting.is_secret else msgspec.json.encode(value, enc_hook=str).decode()
        raise ConfigurationError(f"{setting.key} = {shown} {where}: expected {allowed(setting)}.") from None


def _is_list(setting: Setting) -> bool:
    return isinstance(setting.default, tuple)


def _why(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else type(error).__name__
