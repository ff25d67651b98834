"""A burst in, one turn, the answer out: every channel through a running service, with its platform's API beside it."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

import pytest
from nacl.signing import SigningKey

from harness.databases import Valkey
from harness.gate import GATE, closed_gate
from harness.platforms import discord, meta, slack, telegram, twilio
from harness.platforms.server import FakeAnswer, FakeRequest, Platform
from harness.serving import PATIENT, Served, eventually, served
from turntake import plugins
from turntake.clock import SystemClock
from turntake.platforms.channel import Channel, Request
from turntake.platforms.discord.content import EPOCH_MS

AGENT = f"""{GATE}
async def answer(turn):
    await gate()
    return "You said: " + turn.text
"""
SAID = ("Hey", "I have a question", "about #12345 & <more>")
KEY = "a-key-for-this-test-and-no-other"
ANSWER = "You said: " + "\n".join(SAID)
PAIR = SigningKey(b"a seed of thirty-two bytes long.")


class Inbox(Platform):
    """Where replies to the generic channel are posted."""

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        reply = asked.json["data"]
        self.took(reply["conversationId"], reply["text"])
        return FakeAnswer()


class Trial(NamedTuple):
    """A channel, its platform, the person who writes, and the variables that are set."""

    channel: str
    platform: Callable[[], Platform]
    person: str
    variables: dict[str, str]
    where: str = "API_BASE"
    answer: str = ANSWER
    types: bool = True
    prefix: str = ""


META = {"APP_SECRET": "app-secret", "VERIFY_TOKEN": "verify", "ACCESS_TOKEN": meta.TOKEN}
ESCAPED = ANSWER.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
DISCORD = {"PUBLIC_KEY": PAIR.verify_key.encode().hex(), "PRIVATE_KEY": PAIR.encode().hex(), "BOT_TOKEN": discord.TOKEN}
TRIALS = (
    Trial("whatsapp", meta.WhatsAppApi, "491700000001", META, prefix="wamid."),
    Trial("messenger", meta.MessengerApi, "7000000000000001", META),
    Trial("instagram", meta.InstagramApi, "17000000000000001", META),
    Trial(
        "twilio",
        twilio.TwilioApi,
        "+4915112345678",
        {"AUTH_TOKEN": twilio.TOKEN, "ACCOUNT_SID": twilio.ACCOUNT},
        types=False,
    ),
    Trial("telegram", telegram.TelegramApi, "4711", {"SECRET_TOKEN": "sesame", "BOT_TOKEN": telegram.TOKEN}),
    Trial(
        "slack",
        lambda: slack.SlackApi("D0ADA"),
        "D0ADA",
        {"SIGNING_SECRET": "s", "BOT_TOKEN": slack.TOKEN},
        answer=ESCAPED,
        types=False,
    ),
    Trial("discord", lambda: discord.DiscordApi("8001"), "8001", DISCORD, types=False),
    Trial(
        "generic",
        Inbox,
        "ada",
        {"SECRET": "whsec_dHVybnRha2UgdHVybnRha2UgdHVybnRha2U="},
        where="CALLBACK_URL",
        types=False,
    ),
)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'turntake.db'}"
    server: Valkey = request.getfixturevalue("valkey")
    return f"{server.url}/0?prefix={tmp_path.name.replace('[', '').replace(']', '')}"


class Running:
    """The service with one channel configured, and that channel's platform."""

    def __init__(self, trial: Trial, store: str, folder: Path, stack: ExitStack) -> None:
        (folder / "my_agent.py").write_text(AGENT)
        self.trial = trial
        self.platform = stack.enter_context(trial.platform())
        prepare(self.platform)
        own = {trial.where: self.platform.url, **trial.variables}
        variables = {f"TURNTAKE_{trial.channel.upper()}_{name}": value for name, value in own.items()}
        variables |= {
            "TURNTAKE_API_KEYS": KEY,
            "TURNTAKE_STORE": store,
            "TURNTAKE_AGENT": "my_agent:answer",
            "PYTHONPATH": str(folder),
        }
        self.gate = stack.enter_context(closed_gate())
        self.server: Served = stack.enter_context(served(folder, *PATIENT, env=variables | self.gate.env, key=KEY))
        self.channel: Channel = plugins.load("channels", trial.channel)({n.lower(): v for n, v in own.items()})
        self._clock = SystemClock()
        # Discord's ids hold the time in this way, and none may be from long ago.
        self._first_id = (self._clock.now() - EPOCH_MS) << 22

    def request(self, number: int, text: str) -> Request:
        url = f"{self.server.url}/webhooks/{self.trial.channel}"
        now = self._clock.now() + number
        id = f"{self.trial.prefix}{self._first_id + number}"
        return self.channel.sample(text, sender=self.trial.person, id=id, url=url, now=now)

    def say(self, number: int, text: str) -> None:
        assert post(self.request(number, text)) < 300


def prepare(platform: Platform) -> None:
    if isinstance(platform, discord.DiscordApi):
        platform.interactions.add("sample")


def post(request: Request) -> int:
    sent = urllib.request.Request(request.url, request.body, dict(request.headers), method=request.method)
    try:
        with urllib.request.urlopen(sent, timeout=20) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.channel)
def test_a_burst_becomes_one_turn_and_the_answer_appears_in_the_chat(trial: Trial, store: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = Running(trial, store, tmp_path, stack)
        for number, text in enumerate(SAID):
            running.say(number, text)
        running.say(0, SAID[0])  # the platform calls again
        client = running.server.client
        (conversation,) = client.get("/v1/conversations")["conversations"]
        path = f"/v1/conversations/{conversation['conversationKey']}"
        client.post(f"{path}/flush")
        if trial.types:
            running.platform.wait_for_calls(1)
        running.gate.open()
        ((_, answer),) = running.platform.wait_for(1)
        assert answer == trial.answer
        (turn,) = eventually(client, path, status="idle")["turns"]
        assert (turn["messageCount"], turn["status"]) == (3, "answered")
        assert len(running.platform.sent) == 1
        assert (len(running.platform.calls) > 1) == trial.types, "a typing indicator came first, where there is one"


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.channel)
def test_what_is_forged_is_refused_and_nothing_of_it_is_kept(trial: Trial, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = Running(trial, f"sqlite:///{tmp_path / 'turntake.db'}", tmp_path, stack)
        whole = running.request(1, "believe me")
        for name in whole.headers:
            if name != "content-type":
                without = {other: value for other, value in whole.headers.items() if other != name}
                assert post(Request("POST", whole.url, without, whole.body)) in (401, 403)
        assert running.server.client.get("/v1/conversations")["conversations"] == []


def test_without_its_secret_a_channel_refuses_everything_and_says_so_at_start(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for trial in TRIALS:
            assert post(Request("POST", f"{server.url}/webhooks/{trial.channel}", {}, b"{}")) == 401
        (line,) = [line for line in server.log if line["message"] == "Not configured, so every webhook is refused"]
        assert all(f"/webhooks/{trial.channel}" in line["webhooks"] for trial in TRIALS)
