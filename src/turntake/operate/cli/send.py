"""`turntake send`: a person at the keyboard, so that a server can be tried without a platform."""

import getpass
import uuid
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Parameter

from turntake import plugins
from turntake.clock import SystemClock
from turntake.errors import ConfigurationError
from turntake.operate.cli import webhook as webhooks
from turntake.operate.cli.connection import Key, Url, connected, until
from turntake.operate.cli.flags import Config, Json, option, switch
from turntake.operate.cli.following import Follower, print_turn, wait_for_all
from turntake.operate.cli.output import clean, counted, paint, say, say_json
from turntake.operate.client import Client
from turntake.operate.options.sources import load
from turntake.rules.key import DEFAULT_CHANNEL, ConversationKey

app = App(
    name="send",
    help_epilogue="""
Each text is a message of its own; messages sent together make one turn.

Examples:

    turntake send "hi" "are you open tomorrow?"
    turntake send --follow "hello"            wait for the answer
    turntake send --gap 800 "hi" "about" "my order"   with pauses, as people type
    turntake send --conversation ann "hello"  as somebody else
    turntake send --json "hello"              the server's own words
    turntake send --channel whatsapp "hello"  as WhatsApp would deliver it

A channel of `turntake channels` gets its platform's own webhook, signed with
the secrets that are set here; any other name is only written on the message.
If that channel can reply, the answer really leaves, to whom --sender names.
""",
)


@app.default
def send(
    *texts: Annotated[str, Parameter(name="TEXT", help="What the person says.")],
    conversation: Annotated[str | None, option("Whose conversation. [your user name]", "NAME")] = None,
    sender: Annotated[str, option("Who says it; for a webhook, the person's id at the platform.", "NAME")] = "",
    id: Annotated[str | None, option("The message's id; sent again, it changes nothing. [random]", "ID")] = None,
    channel: Annotated[str, option("The channel it comes through, or seems to. [generic]", "NAME")] = "",
    account: Annotated[str, option("One of the channel's further accounts.", "NAME")] = "",
    webhook: Annotated[bool, switch("Call /webhooks/generic instead of the API.")] = False,
    topic: Annotated[str, option("The topic or thread inside the conversation.", "NAME")] = "",
    tenant: Annotated[str, option("Whose customer it is. [default]", "NAME")] = "",
    agent: Annotated[str, option("The agent that shall answer, by the name that rules use.", "NAME")] = "",
    follow: Annotated[bool, switch("Wait for the answer and print it.")] = False,
    timeout: Annotated[float, option("How long --follow waits, in seconds. [600]", "SECONDS")] = 600,
    gap: Annotated[int, option("The pause between two texts. [0: all at once]", "MS")] = 0,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Send messages to a running server, as a person would."""
    if not texts:
        raise ConfigurationError('Nothing to send: turntake send "hello".')
    if id and len(texts) > 1:
        raise ConfigurationError("--id names one message: send one text, or leave --id out.")
    if gap < 0 or timeout <= 0:
        raise ConfigurationError("--gap is 0 or more milliseconds, --timeout more than 0 seconds.")
    with connected(url, key, config) as client:
        if webhooks.is_wanted(channel, account, webhook):
            _refuse_for_webhooks(conversation=conversation, topic=topic, tenant=tenant, agent=agent, id=follow and id)
            options = load(config=config)
            sample = webhooks.Sample(channel or DEFAULT_CHANNEL, account, texts, sender, id or "")
            calls = webhooks.calls(sample, options, client.url, SystemClock())
            post = partial(_post_webhooks, client, calls, json, gap)
            return _follow(client, calls.key(options), post, json, timeout) if follow else _sent(post)
        _hint_at(channel, json)
        parts = {"conversation": conversation or me(), "channel": channel, "topic": topic, "tenant": tenant}
        said = parts | {"sender": sender, "agent": agent}
        body = [said | {"id": id or str(uuid.uuid4()), "text": text} for text in texts]
        post = partial(_post, client, body, json, gap)
        return _follow(client, _key(parts), post, json, timeout) if follow else _sent(post)


def _refuse_for_webhooks(**flags: object) -> None:
    """A platform decides these itself, and does not say whether it knew an id: --follow could not tell when to stop."""
    for name, value in flags.items():
        if value:
            both = " together with --follow" if name == "id" else ""
            raise ConfigurationError(f"--{name}{both} is not for webhooks, where --sender decides: leave it out.")


def _hint_at(channel: str, json: bool) -> None:
    installed = plugins.names("channels")
    near = get_close_matches(channel, installed, n=1, cutoff=0.8)
    if near and channel not in installed and not json:
        hint = f"No channel is called {clean(channel)}, so the name is only written on the message"
        say(paint("yellow", f"{hint}; did you mean {near[0]}?"))


def _sent(post: Callable[[], set[str]]) -> int:
    post()
    return 0


def _post_webhooks(client: Client, calls: webhooks.WebhookCalls, json: bool, gap: int) -> set[str]:
    """Posts the webhooks, and gives back the ids of their messages."""
    answers = webhooks.post(client.url, calls, lambda: SystemClock().pause(gap))
    if json:
        say_json(answers)
    else:
        say(f"{paint('green', 'accepted')} {counted(len(answers), 'webhook')} at {calls.account.path}")
        for body in dict.fromkeys(answer["body"] for answer in answers if answer["body"]):
            say(f"  {clean(body)}")
    return calls.ids


def me() -> str:
    """Whose conversation it is if nobody says."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "me"


def _key(parts: dict[str, str]) -> str:
    try:
        return str(ConversationKey.of(**parts))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _post(client: Client, body: list[dict[str, str]], json: bool, gap: int) -> set[str]:
    """Sends the messages, together or with pauses, and gives back the ids of those that now wait."""
    receipts: list[dict[str, Any]] = []
    for number, messages in enumerate([[message] for message in body] if gap else [body]):
        if number:
            SystemClock().pause(gap)
        receipts += client.post("/v1/messages", messages)
    if json:
        say_json(receipts)
    else:
        _print_receipts(receipts)
    sent = zip(body, receipts, strict=True)
    return {message["id"] for message, receipt in sent if receipt["status"] == "buffered"}


def _print_receipts(receipts: list[dict[str, Any]]) -> None:
    *_, last = receipts
    for status in dict.fromkeys(receipt["status"] for receipt in receipts):
        number = sum(receipt["status"] == status for receipt in receipts)
        say(f"{paint('green' if status == 'buffered' else 'yellow', status)} {counted(number, 'message')}")
    if last["dueAt"]:
        waiting = counted(last["messages"], "message")
        say(
            f"{waiting} of {clean(last['conversationKey'])} due {until(last['dueAt'], SystemClock())}: {last['reason']}"
        )


def _follow(client: Client, key: str, post: Callable[[], set[str]], json: bool, timeout: float) -> int:
    clock = SystemClock()
    follower = Follower(client, key, clock)
    follower.open_ids = post()
    ended = wait_for_all(follower, clock, int(timeout * 1_000), clock.pause)
    return max((print_turn(turn, json) for turn in ended), default=0)
