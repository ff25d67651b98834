"""`turntake send --channel`: webhooks as the platforms would make them, which a real server believes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from harness.platforms.server import silence
from harness.platforms.telegram import TOKEN, TelegramApi
from harness.serving import QUICK, Served, served
from turntake.operate.cli import main

SEED = bytes(range(32))
KEY = "a-key-that-nobody-guesses"
SECRETS = {
    "TURNTAKE_WHATSAPP_APP_SECRET": "a",
    "TURNTAKE_WHATSAPP_VERIFY_TOKEN": "b",
    "TURNTAKE_MESSENGER_APP_SECRET": "c",
    "TURNTAKE_MESSENGER_VERIFY_TOKEN": "d",
    "TURNTAKE_INSTAGRAM_APP_SECRET": "e",
    "TURNTAKE_INSTAGRAM_VERIFY_TOKEN": "f",
    "TURNTAKE_TWILIO_AUTH_TOKEN": "g",
    "TURNTAKE_TELEGRAM_SECRET_TOKEN": "hhhhhhhhhhhhhhhh",
    "TURNTAKE_SLACK_SIGNING_SECRET": "i",
    "TURNTAKE_DISCORD_PUBLIC_KEY": SigningKey(SEED).verify_key.encode().hex(),
    "TURNTAKE_DISCORD_PRIVATE_KEY": SEED.hex(),
    "TURNTAKE_GENERIC_SECRET": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
    "TURNTAKE_TWILIO_ACCOUNTS": "sales",
    "TURNTAKE_TWILIO_SALES_AUTH_TOKEN": "j",
    "TURNTAKE_PUBLIC_URL": "https://bot.example/chat/",
    "TURNTAKE_API_KEYS": KEY,
}
AGENT = """
async def answer(turn):
    return f"{turn.conversation} said {turn.text!r}"
"""
Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("webhooks")
    (folder / "parrot.py").write_text(AGENT)
    with served(folder, *QUICK, "--agent", "parrot:answer", env=SECRETS, key=KEY) as running:
        yield running


@pytest.fixture(autouse=True)
def _same_settings(_elsewhere: None, monkeypatch: pytest.MonkeyPatch, server: Served) -> None:
    """The settings here are the server's, its port among them."""
    told(monkeypatch, SECRETS | {"TURNTAKE_PORT": server.url.rpartition(":")[2]})


def told(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("channel", ["whatsapp", "messenger", "instagram", "twilio", "telegram", "slack", "discord"])
def test_the_server_believes_and_answers(capsys: Output, channel: str) -> None:
    """Two webhooks, each signed as the platform does for the public address, and the answer to both."""
    assert main(["send", "hi", "there", "--channel", channel, "--follow"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"accepted 2 webhooks at /webhooks/{channel}\n")
    assert said.count("answered ") == said.count("said '")
    assert "there'" in said
    assert f"default:{channel}:" in said


def test_the_generic_channel_takes_webhooks_if_asked(capsys: Output) -> None:
    assert main(["send", "hi", "--webhook", "--sender", "ann"]) == 0
    assert capsys.readouterr().out == 'accepted 1 webhook at /webhooks/generic\n  {"accepted":1,"ignored":0}\n'
    assert main(["send", "hi", "--channel", "generic", "--conversation", "ann"]) == 0
    assert capsys.readouterr().out.startswith("buffered 1 message\n")


def test_an_account_is_called_at_its_own_address(capsys: Output) -> None:
    assert (
        main(["send", "hi", "--channel", "twilio", "--account", "sales", "--follow", "--sender", "+15550100999"]) == 0
    )
    said = capsys.readouterr().out
    assert "accepted 1 webhook at /webhooks/twilio/sales" in said
    assert "said 'hi'" in said
    assert main(["conversations", "--channel", "twilio", "--json"]) == 0
    keys = [c["conversationKey"] for c in json.loads(capsys.readouterr().out)["conversations"]]
    assert any("sales~2F" in key and "+15550100999" in key for key in keys)


def test_json_is_the_servers_own_words(capsys: Output) -> None:
    assert main(["send", "hi", "--channel", "telegram", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"status": 200, "body": ""}]


def test_a_wrong_secret_is_refused_in_the_servers_words(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_SLACK_SIGNING_SECRET", "wrong")
    assert main(["send", "hi", "--channel", "slack"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("turntake: /webhooks/slack refused it with 401: ")
    assert "is it turntake?" not in said.err


@pytest.mark.parametrize(
    ("arguments", "unset", "says"),
    [
        (
            ["--channel", "whatsapp"],
            "TURNTAKE_WHATSAPP_APP_SECRET",
            "must be signed: set TURNTAKE_WHATSAPP_APP_SECRET to",
        ),
        (["--webhook"], "TURNTAKE_GENERIC_SECRET", "Webhooks of generic must be signed: set TURNTAKE_GENERIC_SECRET"),
        (["--channel", "discord"], "TURNTAKE_DISCORD_PRIVATE_KEY", "Only Discord can sign for its public key."),
        (["--channel", "slack", "--account", "eu"], "", "There is no slack/eu; there are: discord, generic, "),
        (["--channel", "pigeon", "--webhook"], "", "There is no pigeon; there are: discord, generic, "),
        (
            ["--channel", "slack", "--conversation", "x"],
            "",
            "--conversation is not for webhooks, where --sender decides",
        ),
        (["--channel", "slack", "--tenant", "x"], "", "--tenant is not for webhooks"),
        (["--channel", "slack", "--topic", "x"], "", "--topic is not for webhooks"),
        (["--channel", "slack", "--id", "x", "--follow"], "", "--id together with --follow is not for webhooks"),
    ],
)
def test_mistakes_are_named(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, arguments: list[str], unset: str, says: str
) -> None:
    monkeypatch.delenv(unset, raising=False)
    assert main(["send", "hi", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_reply_of_unknown_fate_is_pointed_out(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = {
        "TURNTAKE_TELEGRAM_SECRET_TOKEN": "hhhhhhhhhhhhhhhh",
        "TURNTAKE_TELEGRAM_BOT_TOKEN": TOKEN,
        "TURNTAKE_API_KEYS": KEY,
    }
    rash = {
        "TURNTAKE_REPLIES_ON_UNKNOWN": "skip",
        "TURNTAKE_REPLIES_TIMEOUT_MS": "200",
        "TURNTAKE_REPLIES_TYPING": "false",
    }
    with TelegramApi() as telegram, silence() as nothing:
        telegram.next.append(nothing)
        environ = bot | rash | {"TURNTAKE_TELEGRAM_API_BASE": telegram.url}
        with served(tmp_path, *QUICK, env=environ) as running:
            told(monkeypatch, environ | {"TURNTAKE_PORT": running.url.rpartition(":")[2]})
            assert main(["send", "hi", "--channel", "telegram", "--sender", "4711", "--follow"]) == 0
    assert capsys.readouterr().out.endswith("whether it took that; it may not have arrived.\n")


def test_a_name_that_is_nearly_a_channel_is_pointed_out(capsys: Output) -> None:
    """It may be meant so: messages through the API may name any channel."""
    assert main(["send", "hi", "--channel", "whatsap"]) == 0
    hint, buffered, *_ = capsys.readouterr().out.splitlines()
    assert hint.endswith("did you mean whatsapp?")
    assert buffered == "buffered 1 message"
    assert main(["send", "hi", "--channel", "pigeon"]) == 0
    assert "did you mean" not in capsys.readouterr().out


def test_a_channel_with_an_invalid_option_is_reported(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_GENERIC_SCHEME", "rot13")
    assert main(["send", "hi", "--webhook"]) == 2
    assert "generic is broken: The scheme of" in capsys.readouterr().err


def test_another_server_is_called_by_its_own_address(
    server: Served, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its public address is not ours, so what is signed is the address that was named."""
    elsewhere = {name: value for name, value in SECRETS.items() if name != "TURNTAKE_PUBLIC_URL"}
    with served(tmp_path, *QUICK, env=elsewhere) as other:
        assert main(["send", "hi", "--channel", "twilio", "--url", other.url]) == 0
    assert capsys.readouterr().out.startswith("accepted 1 webhook at /webhooks/twilio\n")


def test_ids_look_like_the_platforms_own(capsys: Output, server: Served) -> None:
    """WhatsApp shows that somebody types only for a message of its own."""
    assert main(["send", "hi", "--channel", "whatsapp", "--sender", "15550100777", "--follow"]) == 0
    (conversation,) = [
        each["conversationKey"]
        for each in server.client.get("/v1/conversations", channel="whatsapp", limit=100)["conversations"]
        if each["conversationId"] == "15550100777"
    ]
    (past,) = server.client.get(f"/v1/conversations/{conversation}")["turns"]
    (message,) = server.client.get(f"/v1/turns/{past['turnId']}")["messages"]
    assert message["id"].startswith("wamid.")
