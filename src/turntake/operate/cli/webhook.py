"""A platform's own webhook, made here: signed with our secrets and posted to a server, which cannot tell."""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from turntake.accept.intake import key_of
from turntake.clock import Clock
from turntake.errors import ConfigurationError, TurntakeError
from turntake.operate.account_options import Account, accounts
from turntake.operate.client import address, explained, options
from turntake.operate.options.settings import CHANNELS, Settings
from turntake.platforms.channel import SAID, Channel, ChatEvent, Request

SENDER = "15550100123"


class Webhook(NamedTuple):
    """Requests as the platform would make them, one a message, and what the server will read in them."""

    account: Account
    requests: Sequence[Request]
    events: Sequence[ChatEvent]

    @property
    def ids(self) -> set[str]:
        """What the server knows the messages by."""
        return {event.message_id for event in self.events}

    def key(self, settings: Settings) -> str:
        """The conversation that the messages will be found under."""
        channel, name = self.account.place
        return str(key_of(channel, name, self.events[0], by_person=settings("webhooks.groups") == "person"))


def is_wanted(channel: str, account: str, is_asked_for: bool) -> bool:
    """Whether messages go in through a platform's door; those of the generic channel need to be told so."""
    return bool(account) or is_asked_for or (channel in CHANNELS and channel != "generic")


def webhook(
    settings: Settings, channel: str, name: str, texts: Sequence[str], sender: str, id: str, url: str, clock: Clock
) -> Webhook:
    """The texts as webhooks for the server at `url`. Raises ConfigurationError that says what to set."""
    account = _account(settings, channel or "generic", name)
    called = _base(settings, url) + account.path
    made = _signer(account)
    requests = [
        made.sample(text, sender=sender or SENDER, id=id or str(uuid.uuid4()), url=called, now=clock.now())
        for text in texts
    ]
    said = [event for request in requests for event in made.events_in(request) if event.kind in SAID]
    if not said:
        raise ConfigurationError(f"{account.label} cannot read what it writes itself; its author must mend that.")
    return Webhook(account, requests, said)


def post(url: str, webhook: Webhook) -> list[dict[str, Any]]:
    """What the server at `url` said to each. Raises TurntakeError in its own words if it refused one."""
    with explained(url), httpx2.Client(**options(url)) as http:
        return [_posted(http, webhook.account.path, request) for request in webhook.requests]


def _account(settings: Settings, channel: str, name: str) -> Account:
    known = accounts(settings)
    for account in known:
        if account.place == (channel, name):
            return account
    labels = ", ".join(account.label for account in known)
    wanted = "/".join(filter(None, (channel, name)))
    raise ConfigurationError(f"There is no {wanted}; there are: {labels}. TURNTAKE_<CHANNEL>_ACCOUNTS names more.")


def _signer(account: Account) -> Channel:
    if account.channel is None:
        raise ConfigurationError(f"{account.label} is {account.status}")
    if "verify" in account.missing:
        names = " and ".join(account.missing["verify"])
        raise ConfigurationError(f"Webhooks of {account.label} must be signed: set {names} to what the server has.")
    return account.channel


def _base(settings: Settings, url: str) -> str:
    """The address that platforms are told to call, which some of them sign."""
    is_ours = url.rstrip("/") == address(settings)
    return str((is_ours and settings("public_url")) or url).rstrip("/")


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
