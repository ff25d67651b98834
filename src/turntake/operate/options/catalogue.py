"""All that can be set in this installation: our own settings, and those of every installed channel."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import Literal

from turntake.operate.channel_plugins import ChannelPlugin, channels
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import Setting, settings_of
from turntake.platforms.channel import Option
from turntake.rules.rules import PRESETS

# A preset is not an option but a source of values: it stands for the rules that it names.
PRESET = Setting(
    "rules", "preset", Literal["", *sorted(PRESETS)], "", "Rules to start from; those set below override it."
)
_ACCOUNTS = "Further accounts: each is served at /webhooks/{0}/NAME with settings of its own."


@dataclass(frozen=True)
class Catalogue:
    """The settings in the order in which people see them, and the channels that some of them are for."""

    settings: tuple[Setting, ...]
    channels: Mapping[str, ChannelPlugin]

    @cached_property
    def by_key(self) -> Mapping[str, Setting]:
        return MappingProxyType({setting.key: setting for setting in self.settings})

    @cached_property
    def by_env(self) -> Mapping[str, Setting]:
        return MappingProxyType({env: setting for setting in self.settings for env in setting.env_names})

    @cached_property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(setting.section for setting in self.settings if setting.section))


def own_settings() -> Iterator[Setting]:
    """Those that are there whatever is installed."""
    for section, settings in groupby(settings_of(Options), key=lambda setting: setting.section):
        if section == PRESET.section:
            yield PRESET
        yield from settings


def catalogue() -> Catalogue:
    """Looks for installed channels, and imports them: only they know what they must be told."""
    own = tuple(own_settings())
    installed = channels(taken={setting.section or setting.name for setting in own})
    settings = list(own)
    for name, plugin in installed.items():
        settings += option_settings(name, plugin.options)
        if plugin.channel:
            settings.append(Setting(name, "accounts", tuple[str, ...], (), _ACCOUNTS.format(name)))
    return Catalogue(tuple(settings), MappingProxyType(installed))


def option_settings(section: str, options: Iterable[Option]) -> tuple[Setting, ...]:
    """What can be set for one account; `section` is the channel, or the channel and the account."""
    return tuple(Setting(section, o.name, str, o.default, o.sentence, o.is_secret) for o in options)
