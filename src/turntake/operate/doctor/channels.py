"""Looks the configured channels over, and asks each platform, by calls that change nothing, whether it knows us.

What to ask, and what an answer means, every platform says itself (`platforms/check.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from urllib.parse import urlsplit

from turntake.errors import CallFailed
from turntake.finding import Finding
from turntake.operate.accounts import Account, accounts, shared_secrets, webhook_url
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import env_of, without_password
from turntake.platforms.channel import Channel
from turntake.platforms.check import Verdict
from turntake.platforms.replies import ApiCall, ApiResponse

ASK_MS = 5_000
"""Platforms answer within a second; an operator who waits wants to know soon that one does not."""
PUBLIC_URL = env_of("public_url")


async def examine(options: Options, *, is_offline: bool = False) -> AsyncIterator[Finding]:
    """For every account of which anything is set: is it complete, and unless offline, what does its platform say."""
    configured = [account for account in accounts(options) if account.is_configured]
    for account in configured:
        yield complete(account, options)
    for sentence in shared_secrets(configured):
        yield Finding("warn", "channels", sentence)
    if not is_offline:
        for findings in await asyncio.gather(*(ask(account, options) for account in configured)):
            for finding in findings:
                yield finding


def complete(account: Account, options: Options) -> Finding:
    """What is missing or cannot work, worst first; or where its webhooks go."""
    problems = sorted((*_lacks(account), *_address(account, options)), key=lambda problem: problem.level != "fail")
    if not problems:
        url = without_password(webhook_url(account, options))
        return Finding("ok", account.label, f"{account.status}; its webhooks go to {url}")
    return Finding(problems[0].level, account.label, "; ".join(problem.text for problem in problems))


def _lacks(account: Account) -> Iterator[Verdict]:
    missing = account.missing
    if account.fault:
        yield Verdict("fail", account.status)
    if not account.receives:
        yield Verdict("fail", f"every webhook is refused until {_are_set(missing['verify'])}")
    if "reply" in missing:
        yield Verdict("warn", f"answers stay here until {_are_set(missing['reply'])}")


def _are_set(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} set"


def _address(account: Account, options: Options) -> Iterator[Verdict]:
    """Whether the platform can call us, as far as its needs tell."""
    channel, url = account.plugin.channel, options.public_url
    if channel is None or not channel.needs.public_url or "verify" in account.missing:
        return
    needs, title = channel.needs, account.plugin.title
    if not url and needs.signed_url:
        yield Verdict("fail", f"{title} signs the address that it calls: set {PUBLIC_URL} to the one it was given")
    elif not url:
        yield Verdict("warn", f"set {PUBLIC_URL} to the address at which the platform reaches this server")
    elif not url.startswith("https://"):
        yield Verdict("fail" if needs.https else "warn", f"platforms call https addresses, and {PUBLIC_URL} is none")
    elif needs.ports and _port(url) not in needs.ports:
        ports = f"{', '.join(map(str, needs.ports[:-1]))} and {needs.ports[-1]}"
        yield Verdict("fail", f"{title} calls only the ports {ports}: change {PUBLIC_URL}")


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 443
    except ValueError:
        return 0


async def ask(account: Account, options: Options) -> list[Finding]:
    """What the platform says to our credentials; nothing if there are none, or no call that is known to be harmless."""
    if account.channel is None or account.fault or "reply" in account.missing:
        return []
    verdicts = [verdict async for verdict in _verdicts(account, account.channel, options)]
    return [Finding(level, account.label, _without_secrets(account, text)) for level, text in verdicts]


async def _verdicts(account: Account, channel: Channel, options: Options) -> AsyncIterator[Verdict]:
    question = channel.whoami()
    if question is None:
        return
    response = await _response_to(question.call, account)
    variables = " or ".join(account.variables[name] for name in question.options if account.values[name])
    verdict = response if isinstance(response, Verdict) else question.read(response, variables)
    yield verdict
    check = channel.webhook_check(webhook_url(account, options), bool(options.public_url))
    if verdict.level == "ok" and check is not None:
        response = await _response_to(check.call, account)
        yield response if isinstance(response, Verdict) else check.read(response)


async def _response_to(call: ApiCall, account: Account) -> ApiResponse | Verdict:
    """What came back, or in our own words why nothing did: a URL may hold a token."""
    from turntake.deliver.address_guard import AddressGuard
    from turntake.deliver.http_call import HttpCaller

    guard = AddressGuard(account.values.values())
    try:
        async with HttpCaller("The platform", ASK_MS, headers={"accept": "application/json"}, guard=guard) as caller:
            return await caller.call(call)
    except CallFailed as error:
        failed = "did not answer" if error.is_handed_over else "could not be asked"
        return Verdict("warn", f"the platform {failed} {error.reason}")
    # An address that somebody typed can fail in too many ways to name, and none may end the examination.
    except Exception as error:
        return Verdict("warn", f"the platform could not be asked ({type(error).__name__})")


def _without_secrets(account: Account, text: str) -> str:
    """A platform may quote what it refuses."""
    for option in account.plugin.options:
        for secret in (account.values[option.name], *account.values[option.name].split(",")):
            text = text.replace(secret.strip(), "…") if option.is_secret and secret.strip() else text
    return text
