"""Rules for less than everybody: `[rules.tenant.acme]` and the like become settings, and then layers of rules.

Only turntake.toml has them: a name in the environment could not tell a tenant's name from a rule's.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from turntake.errors import ConfigurationError
from turntake.operate.options.catalogue import PRESET
from turntake.operate.options.groups import Value
from turntake.operate.options.settings import Setting
from turntake.rules.rules import Rules
from turntake.rules.scopes import DEFAULT, SCOPE_KINDS, Layer, RuleBook, RuleScope, scope_of

RULES = PRESET.section
NARROW_KINDS = SCOPE_KINDS[1:]


def is_scope(keys: tuple[str, ...]) -> bool:
    """Whether rules for one platform, tenant, agent or conversation stand in the table here, or in tables in it."""
    return keys[0] == RULES and 1 < len(keys) < 4 and keys[1] in NARROW_KINDS


def scoped_settings(tables: Iterable[tuple[str, ...]], known: Iterable[Setting]) -> tuple[Setting, ...]:
    """What can be set in these tables: every rule, in each of them."""
    rules = [setting for setting in known if setting.section == RULES]
    return tuple(setting._replace(section=".".join(keys)) for keys in tables for setting in rules)


def check_names(tables: Mapping[tuple[str, ...], Mapping[str, Any]], path: Path) -> None:
    """Raises ConfigurationError for a table that names nobody, or somebody that there cannot be."""
    for keys, table in tables.items():
        if len(keys) < 3 and table:
            example = f"[{'.'.join(keys)}.NAME]"
            raise ConfigurationError(f"[{'.'.join(keys)}] in {path}: say which {keys[1]} it is for, as in {example}.")
        if len(keys) == 3:
            try:
                scope_of(keys[1], keys[2])
            except ValueError as error:
                raise ConfigurationError(f"[{'.'.join(keys)}] in {path}: {error}") from None


def layers(tables: Iterable[tuple[str, ...]], values: Mapping[str, Value]) -> dict[RuleScope, Layer]:
    """What the settings say for everybody and for each scope. Raises ConfigurationError if that is impossible."""
    found = {DEFAULT: _layer(RULES, values)}
    for keys in tables:
        if len(keys) == 3:
            found[scope_of(keys[1], keys[2])] = _layer(".".join(keys), values)
    named = {scope: layer for scope, layer in found.items() if layer.named}
    try:
        RuleBook(named)
    except ValueError as error:
        raise ConfigurationError(f"{RULES}: {error}") from None
    return named


def _layer(section: str, values: Mapping[str, Value]) -> Layer:
    given = {name: values.get(f"{section}.{name}") for name in (PRESET.name, *Rules.__struct_fields__)}
    named = {name: value.value for name, value in given.items() if value is not None and value.is_set}
    return Layer(preset=named.pop(PRESET.name, ""), values=named)
