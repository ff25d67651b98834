"""Looks the configured channels over, and asks each platform, by a call that changes nothing, whether it knows us."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec

from turntake.errors import CallFailed
from turntake.finding import Finding
from turntake.operate.account_options import Account, accounts, webhook_url
from turntake.operate.options import groups
from turntake.operate.options.settings import env_of
from turntake.platforms.discord.replies import AGENT as DISCORD_AGENT
from turntake.platforms.replies import ApiCall, ApiResponse

ASK_MS = 5_000
EXCERPT = 200
TELEGRAM_PORTS = frozenset({443, 80, 88, 8443})
PUBLIC_URL = env_of("public_url")
ASKED_WITH = frozenset({"auth_token", "phone_number_id"})
"""Options that a platform is asked with, besides those for replies."""

Problem = tuple[Literal["ok", "warn", "fail"], str]
Options = Mapping[str, str]


async def examine(options: groups.Options, *, is_offline: bool = False) -> AsyncIterator[Finding]:
    """For every account of which anything is set: is it complete, and unless offline, what does its platform say."""
    configured = [account for account in accounts(options) if account.is_configured]
    for account in configured:
        yield complete(account, options)
    if not is_offline:
        for found in await asyncio.gather(*(ask(account, options) for account in configured)):
            for finding in found:
                yield finding


def complete(account: Account, options: groups.Options) -> Finding:
    """What is missing or cannot work, worst first; or where its webhooks go."""
    problems = sorted((*_lacks(account), *_address(account, options)), key=lambda problem: problem[0] != "fail")
    if not problems:
        return Finding("ok", account.label, f"{account.status}; its webhooks go to {webhook_url(account, options)}")
    return Finding(problems[0][0], account.label, "; ".join(says for _, says in problems))


def _lacks(account: Account) -> Iterator[Problem]:
    missing = account.missing
    if account.fault:
        yield "fail", f"broken: {account.fault}"
    if not account.receives:
        yield "fail", f"every webhook is refused until {_are_set(missing['verify'])}"
    if "reply" in missing:
        yield "warn", f"answers stay here until {_are_set(missing['reply'])}"


def _are_set(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} set"


def _address(account: Account, options: groups.Options) -> Iterator[Problem]:
    """Whether the platform can call us; nobody but its users calls the generic channel."""
    channel, url = account.installed.name, options.public_url
    if channel == "generic" or "verify" in account.missing:
        return
    if not url:
        yield _no_address(channel)
    elif not url.startswith("https://"):
        yield "fail" if channel == "telegram" else "warn", f"platforms call https addresses, and {PUBLIC_URL} is none"
    elif channel == "telegram" and _port(url) not in TELEGRAM_PORTS:
        yield "fail", f"Telegram calls only the ports 443, 80, 88 and 8443: change {PUBLIC_URL}"


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 443
    except ValueError:
        return 0


def _no_address(channel: str) -> Problem:
    if channel == "twilio":
        return "fail", f"Twilio signs the address that it calls: set {PUBLIC_URL} to the one it was given"
    return "warn", f"set {PUBLIC_URL} to the address at which the platform reaches this server"


async def ask(account: Account, options: groups.Options) -> list[Finding]:
    """What the platform says to our credentials; nothing if there are none, or no call that is known to be harmless."""
    question = QUESTIONS.get(account.installed.name)
    if question is None or account.fault or "reply" in account.missing:
        return []
    answered = await _answered(question(account.options))
    found = [_known_to(answered, _credentials(account))]
    if account.installed.name == "telegram" and found[0][0] == "ok":
        found.append(await _registered(account, options))
    return [Finding(mark, account.label, _without_secrets(account, says)) for mark, says in found]


def _telegram(options: Options, method: str = "getMe") -> ApiCall:
    return _get(options, f"bot{options['bot_token']}/{method}", {})


def _slack(options: Options) -> ApiCall:
    return msgspec.structs.replace(_get(options, "auth.test", _bearer(options["bot_token"])), method="POST")


def _whatsapp(options: Options) -> ApiCall:
    number = options.get("phone_number_id")
    path = f"{quote(number, safe='')}?fields=display_phone_number,verified_name" if number else "me"
    return _get(options, path, _bearer(options["access_token"]))


def _meta(options: Options) -> ApiCall:
    return _get(options, "me", _bearer(options["access_token"]))


def _twilio(options: Options) -> ApiCall:
    sid, token = options["account_sid"], options["auth_token"].partition(",")[0].strip()
    basic = b64encode(f"{sid}:{token}".encode()).decode()
    return _get(options, f"Accounts/{quote(sid, safe='')}.json", {"authorization": f"Basic {basic}"})


def _discord(options: Options) -> ApiCall:
    # Discord turns programs away that do not name themselves as its bots do.
    return _get(options, "users/@me", {"authorization": f"Bot {options['bot_token']}", "user-agent": DISCORD_AGENT})


QUESTIONS: Mapping[str, Callable[[Options], ApiCall]] = {
    "discord": _discord,
    "instagram": _meta,
    "messenger": _meta,
    "slack": _slack,
    "telegram": _telegram,
    "twilio": _twilio,
    "whatsapp": _whatsapp,
}


def _get(options: Options, path: str, headers: Mapping[str, str]) -> ApiCall:
    return ApiCall(f"{options['api_base'].rstrip('/')}/{path}", headers=headers, method="GET")


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def _answered(call: ApiCall) -> ApiResponse | str:
    """What came back, or in our own words why nothing did: a URL may hold a token."""
    from turntake.deliver.http_call import HttpCaller

    try:
        async with HttpCaller("The platform", ASK_MS, headers={"accept": "application/json"}) as caller:
            return await caller.call(call)
    except CallFailed as error:
        return f"{'did not answer' if error.is_handed_over else 'could not be asked'} {error.reason}"
    # An address that somebody typed can fail in too many ways to name, and none may end the examination.
    except Exception as error:
        return f"could not be asked ({type(error).__name__})"


def _credentials(account: Account) -> str:
    """The variables that a refusal may be about."""
    asked_with = [
        account.variables[option.name]
        for option in account.installed.options
        if (option.use == "reply" or option.name in ASKED_WITH) and account.options[option.name]
    ]
    return " or ".join(asked_with)


def _known_to(answered: ApiResponse | str, credentials: str) -> Problem:
    if isinstance(answered, str):
        return "warn", f"the platform {answered}"
    said = _object(answered.body)
    if answered.status >= 500 or answered.status == 429:
        return "warn", f"the platform answered {answered.status}; ask it again later"
    if answered.status >= 300 or said.get("ok") is False or not said:
        return "fail", f"the platform refuses {credentials}: {_reason(said) or answered.status}"
    return "ok", f"the platform knows us as {_who(said) or 'a valid account'}"


async def _registered(account: Account, options: groups.Options) -> Problem:
    """Whether Telegram calls the address that this server has."""
    answered = await _answered(_telegram(account.options, "getWebhookInfo"))
    info = _object(answered.body).get("result") if isinstance(answered, ApiResponse) else None
    if not isinstance(info, dict):
        return "warn", "the platform did not say which address it calls"
    url, ours = str(info.get("url") or ""), webhook_url(account, options)
    if not url:
        return "fail", f"Telegram calls nobody yet: call setWebhook with url={ours} and the secret_token"
    if options.public_url and url != ours:
        return "fail", f"Telegram calls {url[:EXCERPT]} instead of {ours}: call setWebhook again"
    if info.get("last_error_message"):
        return "warn", f"Telegram's last call failed: {str(info['last_error_message'])[:EXCERPT]}"
    return "ok", f"Telegram calls {url[:EXCERPT]}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _reason(said: Mapping[str, Any]) -> str:
    """The platform's own words, wherever it puts them."""
    error = said.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return str(words or said.get("description") or said.get("message") or "")[:EXCERPT]


def _who(said: Mapping[str, Any]) -> str:
    result = said.get("result")
    facts = result if isinstance(result, dict) else said
    names = ("username", "verified_name", "display_phone_number", "friendly_name", "user", "name", "id")
    return str(next((facts[name] for name in names if facts.get(name)), ""))[:EXCERPT]


def _without_secrets(account: Account, says: str) -> str:
    """A platform may quote what it refuses."""
    for option in account.installed.options:
        for secret in (account.options[option.name], *account.options[option.name].split(",")):
            says = says.replace(secret.strip(), "…") if option.is_secret and secret.strip() else says
    return says
