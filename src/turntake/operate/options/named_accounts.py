"""Named accounts: a channel's `accounts` names them, and each has all settings of its own that are not shared."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from turntake.errors import ConfigurationError
from turntake.operate.channel_plugins import NAME
from turntake.operate.options.catalogue import Catalogue, option_settings
from turntake.operate.options.groups import Value
from turntake.operate.options.settings import PREFIX, Setting

ALLOWED = "lower-case letters, digits, - and _, 64 at most"


class NamedAccounts(NamedTuple):
    """The further accounts of every channel, and the settings that they add."""

    names: Mapping[str, Sequence[str]]
    settings: tuple[Setting, ...]

    def refuse_unknown(self, channel: str, name: str, where: str) -> None:
        """Raises ConfigurationError unless this account was named."""
        known = self.names.get(channel, ())
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"name it in {channel}.accounts first."
            raise ConfigurationError(f"[{channel}.{name}] {where}: there is no such account; {hint}")


def named_accounts(values: Mapping[str, Value], known: Catalogue) -> NamedAccounts:
    """The accounts that these values name. Raises ConfigurationError if a name cannot be one."""
    names = {channel: _names(channel, values.get(f"{channel}.accounts"), known) for channel in known.channels}
    settings = [
        setting
        for channel, accounts in names.items()
        for name in accounts
        for setting in option_settings(f"{channel}.{name}", known.channels[channel].account_options)
    ]
    _refuse_twins(settings, known)
    return NamedAccounts(names, tuple(settings))


def _names(channel: str, value: Value | None, known: Catalogue) -> tuple[str, ...]:
    if value is None:
        return ()
    for name in value.value:
        _refuse_bad(channel, name, f"in {value.origin}", known)
    return tuple(dict.fromkeys(value.value))


def _refuse_bad(channel: str, name: str, where: str, known: Catalogue) -> None:
    if not NAME.fullmatch(name):
        raise ConfigurationError(f'{channel}.accounts = "{name}" {where}: an account\'s name has {ALLOWED}.')
    own = _prefix(channel) + name.replace("-", "_").upper()
    for setting in known.settings:
        if setting.env == own or setting.env.startswith(f"{own}_"):
            raise ConfigurationError(
                f'{channel}.accounts = "{name}" {where}: {setting.env} is a setting already; choose another name.'
            )


def _refuse_twins(settings: Sequence[Setting], known: Catalogue) -> None:
    """Two accounts may not share a variable, as `a-b` and `a_b` would be."""
    by_env: dict[str, Setting] = dict(known.by_env)
    for setting in settings:
        for env in setting.env_names:
            twin = by_env.setdefault(env, setting)
            if twin is not setting:
                raise ConfigurationError(
                    f"[{setting.section}] and [{twin.section}] would share {env}: rename one of the accounts."
                )


def unusable(env: str, known: Catalogue) -> str:
    """Why a variable of a channel that cannot be used is ignored; "" if it is not one."""
    faults = (plugin.fault for name, plugin in known.channels.items() if env.startswith(_prefix(name)))
    return next(filter(None, faults), "")


def unnamed(env: str, known: Catalogue) -> str:
    """Why a variable that reads like an account's is ignored; "" if it does not."""
    for channel, plugin in known.channels.items():
        endings = "|".join(name for s in option_settings("", plugin.account_options) for name in s.env_names)
        match = re.fullmatch(f"{_prefix(channel)}(.+?)_({endings.replace(PREFIX, '')})", env)
        if match and plugin.account_options:
            return f"there is no account {match[1].lower()!r}; name it in {_prefix(channel)}ACCOUNTS."
    return ""


def _prefix(channel: str) -> str:
    return f"{PREFIX}{channel.replace('-', '_').upper()}_"
