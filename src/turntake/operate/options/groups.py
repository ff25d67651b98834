"""Everything that can be set, as typed values: `options.worker.lease_ms` is an int.

Each part of turntake keeps the struct of its own section; here they come together. `sources.load` makes an `Options`
from flags, the environment and turntake.toml; `Options()` has the defaults.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from turntake.accept.options import WebhookOptions
from turntake.argument_checks import Role
from turntake.buffer.janitor import DedupeOptions, HistoryOptions, LetterOptions
from turntake.claim.options import WorkerOptions
from turntake.deliver.options import HandlerOptions, HttpAgentOptions, ReplyOptions
from turntake.http.hosts import reachable
from turntake.http.options import HttpOptions
from turntake.observe.options import SavingsOptions
from turntake.operate.channel_plugins import ChannelPlugin
from turntake.operate.logs import LogOptions
from turntake.operate.options.settings import SECRET, Setting
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleScope
from turntake.service import DEFAULT_ROLE, DEFAULT_STORE


class AccountOptions(NamedTuple):
    """What is set for one account of a channel: `[chat]` has the name "", `[chat.sales]` the name "sales".

    `values` has every option of the channel, with its default unless it is set; `variables` has the names of the
    environment variables for them. What all accounts share is in each, and does not count for `is_set`: it may be
    there for messages that come in by the API, and makes no webhooks work. Nor do the account's tenant and agent.
    """

    plugin: ChannelPlugin
    name: str = ""
    values: Mapping[str, str] = MappingProxyType({})
    variables: Mapping[str, str] = MappingProxyType({})
    is_set: bool = False


class Value(NamedTuple):
    """A value and where it came from; `is_set` unless it is the default's or a preset's."""

    value: Any
    origin: str
    is_set: bool = True


class Sources(NamedTuple):
    """Where the options came from: each value by the key of its setting, and what is odd about them."""

    values: Mapping[str, Value] = MappingProxyType({})
    config: Path | None = None
    warnings: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    """All that can be set here, that of the named accounts too."""

    def is_set(self, key: str) -> bool:
        return key in self.values and self.values[key].is_set


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The fields with a sentence stand at the top of turntake.toml, and each struct is a section of its name."""

    store: Annotated[
        str,
        Meta(description="Where messages are kept: sqlite:///file.db, redis://..., postgresql://... or memory://."),
    ] = DEFAULT_STORE
    agent: Annotated[str, Meta(description="Who answers: echo, module:function, module:turns, or an http(s) URL.")] = (
        "echo"
    )
    public_url: Annotated[str, Meta(description="The address at which others reach this server.")] = ""
    host: Annotated[str, Meta(description="The address to listen on; other than loopback needs API keys.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")] = 8080
    role: Annotated[Role, Meta(description="Only accept messages, only work on turns, or both.")] = DEFAULT_ROLE
    api_keys: Annotated[
        tuple[str, ...], Meta(description="API keys that may do everything, separated by commas.", extra=SECRET)
    ] = ()
    agent_secret: Annotated[str, Meta(description="Signs the requests to an HTTP agent (whsec_...).", extra=SECRET)] = (
        ""
    )
    rules: Rules = Rules()
    worker: WorkerOptions = WorkerOptions()
    history: HistoryOptions = HistoryOptions()
    dedupe: DedupeOptions = DedupeOptions()
    letters: LetterOptions = LetterOptions()
    http: HttpOptions = HttpOptions()
    handler: HandlerOptions = HandlerOptions()
    http_agent: HttpAgentOptions = HttpAgentOptions()
    webhooks: WebhookOptions = WebhookOptions()
    replies: ReplyOptions = ReplyOptions()
    savings: SavingsOptions = SavingsOptions()
    log: LogOptions = LogOptions()
    layers: dict[RuleScope, Layer] = {}
    """What `[rules]` says for everybody, and `[rules.tenant.acme]` and the like for some; `rules` has the first."""
    accounts: tuple[AccountOptions, ...] = ()
    sources: Sources = Sources()

    @property
    def own_url(self) -> str:
        """Where this machine finds the server of these options."""
        host = reachable(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
