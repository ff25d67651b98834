"""From options to the channels that run: every account at every installed platform, and what each still lacks."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from turntake.errors import ConfigurationError
from turntake.operate.channel_plugins import LISTEN, Installed, listener_of
from turntake.operate.options.groups import AccountOptions, Options
from turntake.operate.options.settings import env_of
from turntake.platforms.channel import Channel, Option
from turntake.platforms.listener import Listener
from turntake.platforms.replies import ReplyApi

Place = tuple[str, str]
"""A channel's name and an account's, which is "" for the only or first one."""

HEARD_WHOLE = frozenset({"discord"})
"""The channels whose listener hears messages too, so that they can do without webhooks."""
OFF = frozenset({"0", "false", "no", "off"})


class Account(NamedTuple):
    """One account: what it was told, the channel made of it, and the variables that are missing, by their use.

    `variables` has the name of the environment variable for each option.

    `missing` has "verify" (webhooks are refused), "reply" (answers stay here) and "listen" (nobody listens), each
    only if something is missing. `listener` is there if nothing is missing for it. `fault` says what cannot be used.
    """

    installed: Installed
    name: str = ""
    options: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}
    channel: Channel | None = None
    listener: type[Listener] | None = None
    missing: Mapping[str, tuple[str, ...]] = {}
    fault: str = ""
    is_configured: bool = False

    @property
    def place(self) -> Place:
        return self.installed.name, self.name

    @property
    def label(self) -> str:
        """`whatsapp`, or `whatsapp/sales`."""
        return "/".join(filter(None, self.place))

    @property
    def path(self) -> str:
        return f"/webhooks/{self.label}"

    @property
    def receives(self) -> bool:
        return "verify" not in self.missing or (self.listener is not None and self.installed.name in HEARD_WHOLE)

    @property
    def status(self) -> str:
        if self.fault:
            return f"broken: {self.fault}"
        if not self.is_configured:
            return "not configured"
        if not self.receives:
            return f"incomplete: {_are_missing(self.missing['verify'])}"
        return "receives only" if "reply" in self.missing else "ready"


def accounts(options: Options) -> list[Account]:
    """The main account of every installed channel, configured or not, each followed by its named ones."""
    return [_account(account, options) for account in options.accounts]


def channels_of(accounts: Iterable[Account]) -> dict[Place, Channel]:
    """What can be served; one without its secret refuses all. ConfigurationError if one was told what cannot be."""
    channels: dict[Place, Channel] = {}
    for account in accounts:
        if account.channel is not None:
            channels[account.place] = account.channel
        elif account.installed.channel is not None:
            raise ConfigurationError(f"{account.label}: {account.fault}")
    return channels


def senders_of(accounts: Iterable[Account]) -> dict[Place, ReplyApi]:
    """Those through which answers can leave. ConfigurationError if one was told what cannot be."""
    return {
        account.place: account.installed.sender(account.options)
        for account in accounts
        if account.installed.sender and account.channel and "reply" not in account.missing
    }


def listeners_of(accounts: Iterable[Account]) -> dict[Place, Listener]:
    """Those that have all they need to listen. ConfigurationError if one was told what cannot be."""
    return {account.place: account.listener(account.options) for account in accounts if account.listener is not None}


def webhook_url(account: Account, options: Options) -> str:
    """The address to give to the platform; this machine's own as long as there is no public one."""
    return (options.public_url.rstrip("/") or options.own_url) + account.path


def _account(account: AccountOptions, options: Options) -> Account:
    installed, name, values, variables, is_set = account
    if installed.channel is None:
        return Account(installed, name, fault=installed.fault)
    unset = {o.name: variables[o.name] for o in installed.options if _is_unset(o, values[o.name])}
    missing = _missing(installed, unset) | _no_way_back(installed, options)
    channel, fault = _made(installed.channel, values)
    is_heard = installed.has_listener and is_set and LISTEN not in missing
    listener, unheard = _hearing(installed, unset) if is_heard else (None, "")
    fault = fault or installed.sender_fault or unheard
    return Account(installed, name, values, variables, channel, listener, missing, fault, is_set)


def _is_unset(option: Option, value: str) -> bool:
    """Whether it has no value, or is a switch for the listener that is off."""
    return not value.strip() or (option.use == LISTEN and value.strip().lower() in OFF)


def _hearing(installed: Installed, unset: Mapping[str, str]) -> tuple[type[Listener] | None, str]:
    """The listener, or why it cannot be used; neither if it needs more than its channel knew."""
    listener, fault = listener_of(installed.name)
    lacks = [option for option in listener.options if option.use and option.name in unset] if listener else []
    return (None, "") if lacks else (listener, fault)


def _missing(installed: Installed, unset: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The variables that are needed and not set, by use; `unset` has the variable of every option without a value."""
    missing: dict[str, tuple[str, ...]] = {}
    for option in installed.options:
        if option.use and option.name in unset:
            missing[option.use] = (*missing.get(option.use, ()), unset[option.name])
    return missing


def _no_way_back(installed: Installed, options: Options) -> dict[str, tuple[str, ...]]:
    """The generic channel has no platform to answer through, but an address."""
    if installed.name != "generic" or options.generic.callback_url:
        return {}
    return {"reply": (env_of("generic.callback_url"),)}


def _made(kind: type[Channel], options: Mapping[str, str]) -> tuple[Channel | None, str]:
    try:
        return kind({name: value for name, value in options.items() if value}), ""
    except ConfigurationError as error:
        return None, str(error)


def _are_missing(names: tuple[str, ...]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
