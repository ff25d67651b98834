"""The doctor on channels: are they complete, can platforms reach us, and do the platforms know us."""

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from harness.platforms.server import FakeAnswer, FakeRequest, Platform, silence
from turntake.finding import Finding
from turntake.operate.cli import main
from turntake.operate.doctor import channels as examine_channels
from turntake.operate.options.sources import load

BASE = "https://bot.example"
WHATSAPP = {
    "TURNTAKE_WHATSAPP_APP_SECRET": "app-hunter2",
    "TURNTAKE_WHATSAPP_VERIFY_TOKEN": "word-hunter2",
    "TURNTAKE_WHATSAPP_ACCESS_TOKEN": "EAAhunter2",
    "TURNTAKE_WHATSAPP_PHONE_NUMBER_ID": "106540352242922",
}
SLACK = {"TURNTAKE_SLACK_SIGNING_SECRET": "sign-hunter2", "TURNTAKE_SLACK_BOT_TOKEN": "xoxb-hunter2"}
TELEGRAM = {"TURNTAKE_TELEGRAM_BOT_TOKEN": "123:hunter2", "TURNTAKE_TELEGRAM_SECRET_TOKEN": "word_hunter2"}
TWILIO = {"TURNTAKE_TWILIO_ACCOUNT_SID": "AC1", "TURNTAKE_TWILIO_AUTH_TOKEN": "new-hunter2,old-hunter2"}
DISCORD = {"TURNTAKE_DISCORD_BOT_TOKEN": "bot-hunter2", "TURNTAKE_DISCORD_PUBLIC_KEY": "ab" * 32}
GENERIC = {"TURNTAKE_GENERIC_SECRET": "whsec_aHVudGVyMg=="}
OUTSIDE = {"TURNTAKE_PUBLIC_URL": BASE}

Output = pytest.CaptureFixture[str]


class Every(Platform):
    """All platforms at once: each call that is right is answered as its platform would."""

    webhook = f"{BASE}/webhooks/telegram"
    last_error = ""

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        basic = "Basic " + base64.b64encode(b"AC1:new-hunter2").decode()
        match asked.method, asked.path, asked.headers.get("authorization"):
            case "GET", "/106540352242922?fields=display_phone_number,verified_name", "Bearer EAAhunter2":
                return FakeAnswer(body={"id": "106540352242922", "verified_name": "Bike shop"})
            case "GET", "/me", "Bearer EAAhunter2":
                return FakeAnswer(body={"id": "17", "name": "The page"})
            case "POST", "/auth.test", "Bearer xoxb-hunter2":
                return FakeAnswer(body={"ok": True, "user": "helper", "team": "Bikes"})
            case "GET", "/bot123:hunter2/getMe", None:
                return FakeAnswer(body={"ok": True, "result": {"id": 123, "username": "bike_bot"}})
            case "GET", "/bot123:hunter2/getWebhookInfo", None:
                return FakeAnswer(
                    body={"ok": True, "result": {"url": self.webhook, "last_error_message": self.last_error}}
                )
            case "GET", "/Accounts/AC1.json", given if given == basic:
                return FakeAnswer(body={"sid": "AC1", "friendly_name": "Bikes Inc"})
            case "GET", "/users/@me", "Bot bot-hunter2" if asked.headers["user-agent"].startswith("DiscordBot ("):
                return FakeAnswer(body={"id": "9", "username": "bikes"})
        return FakeAnswer(404, {"message": f"no {asked.method} {asked.path}"})


@pytest.fixture
def platform() -> Iterator[Every]:
    with Every() as every:
        yield every


async def checks(environ: dict[str, str], **how: bool) -> list[Finding]:
    return [finding async for finding in examine_channels.examine(load(environ=environ), **how)]


async def asked(environ: dict[str, str], platform: Platform) -> list[Finding]:
    """What the platform's answers make of a complete account."""
    channel = next(name for name in environ if name.endswith(("TOKEN", "SECRET"))).split("_")[1]
    bases = {f"TURNTAKE_{channel}_API_BASE": platform.url}
    _, *found = await checks(environ | bases | OUTSIDE)
    return found


async def test_nothing_is_said_of_what_is_not_configured() -> None:
    assert await checks({}) == []


@pytest.mark.parametrize(
    ("environ", "mark", "says"),
    [
        (WHATSAPP | OUTSIDE, "ok", "ready; its webhooks go to https://bot.example/webhooks/whatsapp"),
        (WHATSAPP, "warn", "set TURNTAKE_PUBLIC_URL to the address at which the platform reaches this server"),
        (
            WHATSAPP | {"TURNTAKE_PUBLIC_URL": "http://x.example"},
            "warn",
            "platforms call https addresses, and TURNTAKE_P",
        ),
        (
            {"TURNTAKE_WHATSAPP_APP_SECRET": "x"} | OUTSIDE,
            "fail",
            "every webhook is refused until TURNTAKE_WHATSAPP_VERIFY_TOKEN is set; answers stay here until TURNTAKE_",
        ),
        (
            WHATSAPP | {"TURNTAKE_WHATSAPP_API_BASE": "x"},
            "fail",
            "broken: TURNTAKE_WHATSAPP_API_BASE is not an addr",
        ),
        (TWILIO | OUTSIDE, "ok", "ready; its webhooks go to https://bot.example/webhooks/twilio"),
        (TWILIO, "fail", "Twilio signs the address that it calls: set TURNTAKE_PUBLIC_URL"),
        (TWILIO | {"TURNTAKE_PUBLIC_URL": "http://x.example"}, "warn", "platforms call https"),
        (TELEGRAM | {"TURNTAKE_PUBLIC_URL": "https://x.example:8443"}, "ok", "ready"),
        (TELEGRAM | {"TURNTAKE_PUBLIC_URL": "https://x.example:8080"}, "fail", "Telegram calls only the ports 443, 80"),
        (TELEGRAM | {"TURNTAKE_PUBLIC_URL": "https://x.example:none"}, "fail", "Telegram calls only the ports 443, 80"),
        (TELEGRAM | {"TURNTAKE_PUBLIC_URL": "http://x.example"}, "fail", "platforms call https addresses"),
        (GENERIC, "warn", "answers stay here until TURNTAKE_GENERIC_CALLBACK_URL is set"),
        (
            GENERIC | {"TURNTAKE_GENERIC_CALLBACK_URL": "https://x.example"},
            "ok",
            "ready; its webhooks go to http://127",
        ),
        ({"TURNTAKE_DISCORD_BOT_TOKEN": "x", "TURNTAKE_DISCORD_GATEWAY": "true"}, "ok", "ready"),
    ],
)
async def test_missing_variables_of_an_account_are_named(environ: dict[str, str], mark: str, says: str) -> None:
    (finding,) = await checks(environ, is_offline=True)
    assert (finding.level, finding.text[: len(says)]) == (mark, says)


async def test_every_account_is_examined() -> None:
    named = {"TURNTAKE_SLACK_ACCOUNTS": "eu", "TURNTAKE_SLACK_EU_SIGNING_SECRET": "x"}
    found = await checks(SLACK | named | OUTSIDE, is_offline=True)
    assert [(finding.level, finding.subject) for finding in found] == [("ok", "slack"), ("warn", "slack/eu")]
    assert found[1].text == "answers stay here until TURNTAKE_SLACK_EU_BOT_TOKEN is set"


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        (WHATSAPP, "Bike shop"),
        ({**WHATSAPP, "TURNTAKE_WHATSAPP_PHONE_NUMBER_ID": ""}, "The page"),
        ({name.replace("WHATSAPP", "MESSENGER"): WHATSAPP[name] for name in list(WHATSAPP)[:3]}, "The page"),
        ({name.replace("WHATSAPP", "INSTAGRAM"): WHATSAPP[name] for name in list(WHATSAPP)[:3]}, "The page"),
        (SLACK, "helper"),
        (TWILIO, "Bikes Inc"),
        (DISCORD, "bikes"),
    ],
    ids=["whatsapp", "whatsapp without a number", "messenger", "instagram", "slack", "twilio", "discord"],
)
async def test_the_platform_knows_us(platform: Every, environ: dict[str, str], who: str) -> None:
    (finding,) = await asked(environ, platform)
    assert (finding.level, finding.text) == ("ok", f"the platform knows us as {who}")


async def test_offline_nobody_is_asked(platform: Every) -> None:
    await checks(SLACK | {"TURNTAKE_SLACK_API_BASE": platform.url}, is_offline=True)
    assert platform.calls == []


async def test_without_credentials_nobody_is_asked(platform: Every) -> None:
    environ = {"TURNTAKE_SLACK_SIGNING_SECRET": "x", "TURNTAKE_SLACK_API_BASE": platform.url}
    assert len(await checks(environ)) == 1
    assert platform.calls == []


@pytest.mark.parametrize(
    ("said", "mark", "says"),
    [
        (
            FakeAnswer(200, {"ok": False, "error": "invalid_auth"}),
            "fail",
            "refuses TURNTAKE_SLACK_BOT_TOKEN: invalid_auth",
        ),
        (FakeAnswer(200, {"ok": False, "error": "no xoxb-hunter2"}), "fail", "refuses TURNTAKE_SLACK_BOT_TOKEN: no …"),
        (FakeAnswer(404, b"<html>"), "fail", "refuses TURNTAKE_SLACK_BOT_TOKEN: 404"),
        (
            FakeAnswer(302, {}, {"location": "https://elsewhere.example"}),
            "fail",
            "refuses TURNTAKE_SLACK_BOT_TOKEN: 302",
        ),
        (FakeAnswer(200, b"[1]"), "fail", "refuses TURNTAKE_SLACK_BOT_TOKEN: 200"),
        (FakeAnswer(200, {"ok": True}), "ok", "knows us as a valid account"),
        (FakeAnswer(503, {}), "warn", "the platform answered 503; ask it again later"),
        (FakeAnswer(429, {}), "warn", "the platform answered 429; ask it again later"),
    ],
)
async def test_the_platforms_own_words(platform: Every, said: FakeAnswer, mark: str, says: str) -> None:
    """A refusal is quoted, but never with our secret in it."""
    platform.next.append(said)
    (finding,) = await asked(SLACK, platform)
    assert (finding.level, finding.subject) == (mark, "slack")
    assert finding.text.endswith(says)
    assert "hunter2" not in finding.text


@pytest.mark.parametrize(
    ("environ", "body", "says"),
    [
        (
            WHATSAPP,
            {"error": {"message": "Malformed access token EAAhunter2", "code": 190}},
            "TURNTAKE_WHATSAPP_ACCESS_TOKEN or TURNTAKE_WHATSAPP_PHONE_NUMBER_ID: Malformed access token …",
        ),
        (
            {**WHATSAPP, "TURNTAKE_WHATSAPP_PHONE_NUMBER_ID": ""},
            {"error": {"message": "no"}},
            "TURNTAKE_WHATSAPP_ACCESS_TOKEN: no",
        ),
        (TWILIO, {"message": "no"}, "TURNTAKE_TWILIO_ACCOUNT_SID or TURNTAKE_TWILIO_AUTH_TOKEN: no"),
        (TELEGRAM, {"ok": False, "description": "Unauthorized"}, "TURNTAKE_TELEGRAM_BOT_TOKEN: Unauthorized"),
        (DISCORD, {"message": "401: Unauthorized", "code": 0}, "TURNTAKE_DISCORD_BOT_TOKEN: 401: Unauthorized"),
    ],
)
async def test_a_refusal_names_what_may_be_wrong(
    platform: Every, environ: dict[str, str], body: dict[str, Any], says: str
) -> None:
    """Every platform puts its reason into another place."""
    platform.next.append(FakeAnswer(401, body))
    (finding,) = await asked(environ, platform)
    assert finding.text == f"the platform refuses {says}"


async def test_several_variables_are_missing() -> None:
    (finding,) = await checks({"TURNTAKE_WHATSAPP_PHONE_NUMBER_ID": "1"} | OUTSIDE, is_offline=True)
    names = "TURNTAKE_WHATSAPP_APP_SECRET and TURNTAKE_WHATSAPP_VERIFY_TOKEN"
    assert finding.text.startswith(f"every webhook is refused until {names} are set; ")


async def test_a_platform_that_does_not_answer(platform: Every, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_channels, "ASK_MS", 300)
    with silence() as nothing:
        platform.next.append(nothing)
        (finding,) = await asked(TELEGRAM, platform)
    assert (finding.level, finding.text) == ("warn", "the platform did not answer within 300 ms")


@pytest.mark.parametrize("base", ["http://127.0.0.1:1", "https://[broken", "http://127.0.0.1:99999"])
async def test_a_platform_that_cannot_be_reached(base: str) -> None:
    """The words are ours, since Telegram's address holds the token."""
    *_, finding = await checks(TELEGRAM | OUTSIDE | {"TURNTAKE_TELEGRAM_API_BASE": base})
    assert finding.level == "warn"
    assert finding.text.startswith("the platform could not be asked (")
    assert "hunter2" not in finding.text


@pytest.mark.parametrize(
    ("url", "error", "mark", "says"),
    [
        (f"{BASE}/webhooks/telegram", "", "ok", "Telegram calls https://bot.example/webhooks/telegram"),
        (
            "",
            "",
            "fail",
            "Telegram calls nobody yet: call setWebhook with url=https://bot.example/webhooks/telegram and",
        ),
        (
            "https://old.example/123:hunter2",
            "",
            "fail",
            "Telegram calls https://old.example/… instead of https://bot.ex",
        ),
        (
            f"{BASE}/webhooks/telegram",
            "Wrong response: 401",
            "warn",
            "Telegram's last call failed: Wrong response: 401",
        ),
    ],
)
async def test_telegram_is_asked_whom_it_calls(platform: Every, url: str, error: str, mark: str, says: str) -> None:
    platform.webhook, platform.last_error = url, error
    known, registered = await asked(TELEGRAM, platform)
    assert (known.level, known.text) == ("ok", "the platform knows us as bike_bot")
    assert (registered.level, registered.text[: len(says)]) == (mark, says)
    assert "hunter2" not in registered.text


async def test_telegram_may_not_say_whom_it_calls(platform: Every) -> None:
    platform.next += [FakeAnswer(body={"ok": True, "result": {"username": "b"}}), FakeAnswer(500, b"")]
    _, registered = await asked(TELEGRAM, platform)
    assert registered.text == "the platform did not say which address it calls"


def test_the_doctor_tells(platform: Every, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings and settings, those of named accounts too, and no secret; what a platform says commands no terminal."""
    named = {"TURNTAKE_SLACK_ACCOUNTS": "eu", "TURNTAKE_SLACK_EU_SIGNING_SECRET": "eu-hunter2"}
    for name, value in (SLACK | OUTSIDE | named | {"TURNTAKE_SLACK_API_BASE": platform.url}).items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = str(bound.getsockname()[1])
    assert main(["doctor", "--port", port]) == 0
    said = capsys.readouterr().out
    assert "✓ slack        the platform knows us as helper" in said
    assert "hunter2" not in said
    platform.next.append(FakeAnswer(body={"ok": False, "error": "no\x1b[31m"}))
    assert main(["doctor", "--port", port]) == 1
    assert "\x1b[31m" not in capsys.readouterr().out
    calls = len(platform.calls)
    assert main(["doctor", "--port", port, "--offline", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    rows = {row["setting"]: row["value"] for row in found["settings"]}
    assert (rows["slack.eu.signing_secret"], rows["slack.eu.bot_token"], rows["slack.accounts"]) == (
        "set",
        "not set",
        "eu",
    )
    assert len(platform.calls) == calls
