"""A platform's webhook as the platform would send it: signed with the secrets that are set here, posted to a server."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from turntake import plugins
from turntake.accept.intake import key_of
from turntake.clock import Clock
from turntake.errors import ConfigurationError, TurntakeError
from turntake.operate.accounts import Account, accounts, home_of
from turntake.operate.client import client_options, explained
from turntake.operate.options.groups import Options
from turntake.platforms.channel import SAID, Channel, ChatEvent, Request
from turntake.rules.key import DEFAULT_CHANNEL

SENDER = "15550100123"


class Sample(NamedTuple):
    """What to write as a platform would: each text a message, from `sender`, to one of our accounts.

    An `id` is for the first message; without one, each gets a random one.
    """

    channel: str
    account: str
    texts: Sequence[str]
    sender: str = ""
    id: str = ""


class WebhookCalls(NamedTuple):
    """Requests as the platform would make them, one per message, and what the server will read in them."""

    account: Account
    requests: Sequence[Request]
    events: Sequence[ChatEvent]

    @property
    def ids(self) -> set[str]:
        """The ids under which the server keeps the messages."""
        return {event.message_id for event in self.events}

    def key(self, options: Options) -> str:
        """The conversation that the messages will be found under."""
        channel, name = self.account.id
        by_person, tenant = options.webhooks.groups == "person", home_of(self.account).tenant
        return str(key_of(channel, name, self.events[0], by_person=by_person, tenant=tenant))


def is_wanted(channel: str, account: str, is_asked_for: bool) -> bool:
    """Whether messages go in as a platform's webhooks; those of the default channel only if that is asked for."""
    return bool(account) or is_asked_for or (channel in plugins.names("channels") and channel != DEFAULT_CHANNEL)


def calls(sample: Sample, options: Options, url: str, clock: Clock) -> WebhookCalls:
    """The sample as webhooks for the server at `url`. Raises ConfigurationError that says what to set."""
    account = _account(options, sample.channel, sample.account)
    channel = _channel_of(account)
    target = _base(options, url) + account.path
    sender = sample.sender or SENDER
    requests = [
        channel.sample(
            text, sender=sender, id=sample.id or channel.sample_id(uuid.uuid4().hex), url=target, now=clock.wall()
        )
        for text in sample.texts
    ]
    events = [event for request in requests for event in channel.read(request).events if event.kind in SAID]
    if not events:
        raise ConfigurationError(f"{account.label} cannot read what it writes itself; its author must mend that.")
    return WebhookCalls(account, requests, events)


def post(url: str, calls: WebhookCalls, pause: Callable[[], None]) -> list[dict[str, Any]]:
    """What the server at `url` answered to each; `pause` is called between two.

    Raises TurntakeError in its own words if it refused one.
    """
    answers: list[dict[str, Any]] = []
    with explained(url), httpx2.Client(**client_options(url)) as http:
        for request in calls.requests:
            if answers:
                pause()
            answers.append(_posted(http, calls.account.path, request))
    return answers


def _account(options: Options, channel: str, name: str) -> Account:
    known = accounts(options)
    for account in known:
        if account.id == (channel, name):
            return account
    labels = ", ".join(account.label for account in known)
    wanted = "/".join(filter(None, (channel, name)))
    raise ConfigurationError(f"There is no {wanted}; there are: {labels}. TURNTAKE_<CHANNEL>_ACCOUNTS names more.")


def _channel_of(account: Account) -> Channel:
    if account.channel is None:
        raise ConfigurationError(f"{account.label} is {account.status}")
    if "verify" in account.missing:
        names = " and ".join(account.missing["verify"])
        raise ConfigurationError(f"Webhooks of {account.label} must be signed: set {names} to what the server has.")
    return account.channel


def _base(options: Options, url: str) -> str:
    """The address that platforms are told to call, which some of them sign."""
    is_ours = url.rstrip("/") == options.own_url
    return ((is_ours and options.public_url) or url).rstrip("/")


def _posted(http: httpx2.Client, path: str, request: Request) -> dict[str, Any]:
    query = urlsplit(request.url).query
    target = f"{path}?{query}" if query else path
    answer = http.request(request.method, target, content=request.body, headers=dict(request.headers))
    if answer.status_code >= 300:
        raise TurntakeError(f"{path} refused it with {answer.status_code}: {_detail(answer)}")
    return {"status": answer.status_code, "body": answer.text}


def _detail(answer: httpx2.Response) -> str:
    try:
        return str(msgspec.json.decode(answer.content)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "is it turntake?"
