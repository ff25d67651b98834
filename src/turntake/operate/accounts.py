"""From options to the channels that run: every account at every installed platform, and what each still lacks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from turntake.accept.homes import Home
from turntake.errors import ConfigurationError
from turntake.http.hosts import is_loopback
from turntake.operate.channel_plugins import LISTEN, ChannelPlugin, ListenerPlugin
from turntake.operate.options.groups import AccountOptions, Options
from turntake.platforms.channel import Channel, Option, keys_in
from turntake.platforms.listener import Listener
from turntake.platforms.replies import ReplyApi
from turntake.rules.scopes import scope_of

AccountId = tuple[str, str]
"""A channel's name and an account's, which is "" for the only or first one."""

API_BASE = "api_base"
"""What every platform calls the option for the address of its API."""
OFF = frozenset({"0", "false", "no", "off"})


class Account(NamedTuple):
    """One account: the values of its options, the channel built from them, and the variables that are missing, by use.

    `variables` has the name of the environment variable for each option.
    `missing` has "verify" (webhooks are refused), "reply" (answers stay here) and "listen" (nobody listens), each
    only if something is missing. `listener` is there if nothing is missing for it. `fault` says what cannot be used;
    if it `lacks_extra`, because a library is not installed.
    """

    plugin: ChannelPlugin
    name: str = ""
    values: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}
    channel: Channel | None = None
    listener: type[Listener] | None = None
    missing: Mapping[str, tuple[str, ...]] = {}
    fault: str = ""
    is_configured: bool = False
    lacks_extra: bool = False

    @property
    def id(self) -> AccountId:
        return self.plugin.name, self.name

    @property
    def label(self) -> str:
        """The channel, and for a named account its name: `chat`, `chat/sales`."""
        return "/".join(filter(None, self.id))

    @property
    def path(self) -> str:
        return f"/webhooks/{self.label}"

    @property
    def receives(self) -> bool:
        """Whether messages come in, by webhooks or over the listener's connection."""
        hears = self.listener is not None and self.channel is not None and self.channel.listener_receives_messages
        return "verify" not in self.missing or hears

    @property
    def status(self) -> str:
        if self.fault:
            return f"{'needs an extra' if self.lacks_extra else 'broken'}: {self.fault}"
        if not self.is_configured:
            return "not configured"
        if not self.receives:
            return f"incomplete: {_are_missing(self.missing['verify'])}"
        return "receives only" if "reply" in self.missing else "ready"


class CallbackAccount(NamedTuple):
    """A channel whose answers are posted to a URL, and the secret that signs them."""

    channel: str
    url: str
    secret: str


def accounts(options: Options) -> list[Account]:
    """The main account of every installed channel, configured or not, each followed by its named ones."""
    return [_account(account, options.replies.private_hosts) for account in options.accounts]


def channels_of(accounts: Iterable[Account]) -> dict[AccountId, Channel]:
    """What can be served; one without its secret refuses all. ConfigurationError if a value cannot be right."""
    channels: dict[AccountId, Channel] = {}
    for account in accounts:
        if account.channel is not None:
            channels[account.id] = account.channel
        elif account.plugin.channel is not None:
            raise ConfigurationError(f"{account.label}: {account.fault}")
    return channels


def reply_apis_of(accounts: Iterable[Account]) -> dict[AccountId, ReplyApi]:
    """Those through which answers can leave. ConfigurationError if a value cannot be right."""
    return {
        account.id: account.channel.reply_api()
        for account in accounts
        if account.channel is not None and account.channel.replies is not None and "reply" not in account.missing
    }


def callbacks_of(accounts: Iterable[Account]) -> list[CallbackAccount]:
    """The channels whose answers are posted to a URL that is set. All accounts of a channel share it."""
    mains = [account for account in accounts if account.channel is not None and not account.name]
    return [
        CallbackAccount(account.plugin.name, account.values[options.url], account.values[options.secret])
        for account in mains
        if account.channel and (options := account.channel.callback) and account.values[options.url]
    ]


def listeners_of(accounts: Iterable[Account]) -> dict[AccountId, Listener]:
    """Those that have all they need to listen. ConfigurationError if a value cannot be right."""
    return {account.id: account.listener(account.values) for account in accounts if account.listener is not None}


def homes_of(accounts: Iterable[Account]) -> dict[AccountId, Home]:
    """The tenants and agents of accounts that have one. ConfigurationError if a value cannot be right."""
    return {account.id: home for account in accounts if (home := home_of(account)) != Home()}


def home_of(account: Account) -> Home:
    """The tenant and the agent of an account."""
    names = {option.name for option in account.plugin.home}
    tenant, agent = (account.values.get(name, "") if name in names else "" for name in ("tenant", "agent"))
    try:
        return Home(scope_of("tenant", tenant).id if tenant else "", scope_of("agent", agent).id if agent else "")
    except ValueError as error:
        raise ConfigurationError(f"{account.label}: {error}") from None


def shared_secrets(accounts: Iterable[Account]) -> list[str]:
    """One sentence for each secret that checks the webhooks of several accounts of a channel.

    Unless the platform signs the address too, a webhook for one of them is believed at the address of the others.
    """
    holders: dict[tuple[str, str, bytes], list[Account]] = {}
    for account in accounts:
        for option in _proofs(account):
            for secret in keys_in(account.values[option.name]):
                holders.setdefault((account.plugin.name, option.name, secret), []).append(account)
    return [
        f"{' and '.join(account.variables[name] for account in several)} are the same: a webhook for one of these "
        "accounts is believed at the address of the other. One account is enough for all numbers of one app"
        for (_, name, _), several in holders.items()
        if len(several) > 1
    ]


def _proofs(account: Account) -> list[Option]:
    """The options that show who sends a message, where that is all there is to show it."""
    if account.channel is None or account.channel.needs.signed_url:
        return []
    return [option for option in account.plugin.options if option.use == "verify" and not option.is_for_handshake]


def webhook_url(account: Account, options: Options) -> str:
    """The address to give to the platform; this machine's own as long as there is no public one."""
    return (options.public_url.rstrip("/") or options.own_url) + account.path


def is_reached(options: Options, accounts: Iterable[Account]) -> bool:
    """Whether anything says that others reach this server: then nobody is let in without a key."""
    return bool(options.public_url) or any(a.channel is not None and a.channel.has_secret for a in accounts)


def _account(account: AccountOptions, private_hosts: Sequence[str]) -> Account:
    plugin, name, values, variables, is_set = account
    if plugin.channel is None:
        return Account(plugin, name, fault=plugin.fault, lacks_extra=plugin.lacks_extra)
    missing: dict[str, tuple[str, ...]] = {}
    for option in plugin.options:
        if option.use and _is_unset(option, values[option.name]):
            missing[option.use] = (*missing.get(option.use, ()), variables[option.name])
    fault = _open_to_readers(account, private_hosts)
    own = {name: value for name, value in values.items() if name not in {option.name for option in plugin.home}}
    channel, fault = (None, fault) if fault else _channel(plugin.channel, own)
    found = plugin.load_listener() if is_set and LISTEN not in missing else ListenerPlugin()
    lacks_extra = found.lacks_extra and not fault
    fault = fault or found.fault
    return Account(plugin, name, values, variables, channel, found.listener, missing, fault, is_set, lacks_extra)


def _is_unset(option: Option, value: str) -> bool:
    """Whether it has no value, or is a switch for the listener that is off."""
    return not value.strip() or (option.use == LISTEN and value.strip().lower() in OFF)


def _open_to_readers(account: AccountOptions, private_hosts: Sequence[str]) -> str:
    """Why tokens must not be sent to the platform's address; "" if nobody can read them on the way."""
    url = account.values.get(API_BASE, "")
    host = _host(url)
    if not url.lower().startswith("http://") or is_loopback(host) or host in private_hosts:
        return ""
    variable = account.variables[API_BASE]
    return f"{variable} sends tokens over plain http to {host}: use https, or name the host in replies.private_hosts."


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _channel(kind: type[Channel], values: Mapping[str, str]) -> tuple[Channel | None, str]:
    try:
        return kind({name: value for name, value in values.items() if value}), ""
    except ConfigurationError as error:
        return None, str(error)


def _are_missing(names: tuple[str, ...]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
