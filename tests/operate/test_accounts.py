"""From settings to channels: every account, what it lacks, what runs; plug-ins of others, good and broken."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from harness.serving import run
from turntake import plugins as adapters
from turntake.accept.homes import Home
from turntake.deliver.replies import Replies
from turntake.errors import ConfigurationError, Forged, MissingExtra
from turntake.operate.accounts import (
    Account,
    accounts,
    channels_of,
    homes_of,
    listeners_of,
    reply_apis_of,
    shared_secrets,
)
from turntake.operate.assemble import outbound_of
from turntake.operate.channel_plugins import ChannelPlugin
from turntake.operate.cli import main
from turntake.operate.options.sources import load
from turntake.platforms.channel import Channel, Option

ROOT = Path(__file__).parents[2]
OURS = ["discord", "generic", "instagram", "messenger", "slack", "telegram", "twilio", "whatsapp"]
META = {"TURNTAKE_WHATSAPP_APP_SECRET": "s3cret", "TURNTAKE_WHATSAPP_VERIFY_TOKEN": "word"}
TYPING = {
    "TURNTAKE_TELEGRAM_BOT_TOKEN": "123:abc",
    "TURNTAKE_TELEGRAM_SECRET_TOKEN": "word",
    "TURNTAKE_TELEGRAM_TYPING_API_ID": "1",
    "TURNTAKE_TELEGRAM_TYPING_API_HASH": "h",
}
DISCORD = {"TURNTAKE_DISCORD_BOT_TOKEN": "t"}
NOW = 1_800_000_000_000
URL = "https://bot.example/webhooks/x"

PLUGIN = """
import sys
from turntake.platforms.channel import Channel, Delivery, Option, Request
from turntake.platforms.replies import ReplyApi

class PigeonReplies(ReplyApi):
    longest = 10
    def reply_call(self, to, text, reply_id): ...
    def check(self, response): ...

class Pigeon(Channel):
    replies = PigeonReplies
    listener = "pigeon_ear:Ear"
    options = (
        Option("ring", "What is on its ring.", use="verify"),
        Option("loft", "Where it lives.", use="reply", is_secret=False),
        Option("ear", "Whether to listen.", use="listen", is_secret=False),
    )
    def verify(self, request, now): ...
    def read(self, request): return Delivery()
    def sample(self, text, *, sender, id, url, now): return Request("POST", url)

class Mute(Pigeon):
    replies = Pigeon
"""
LISTENER = """
from turntake.platforms.listener import Listener
class Ear(Listener):
    async def listen(self, on_events): ...
"""
ENTRIES = """
[turntake.channels]
carrier-pigeon = pigeon:Pigeon
cracked = cracked:Cracked
gone = gone:Gone
log = pigeon:Pigeon
mute = pigeon:Mute
number = pigeon:sys
shy = shy:Shy
"""
Output = pytest.CaptureFixture[str]


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with somebody else's package: one good channel, and bad ones of every kind."""
    folder = tmp_path / "plugins"
    (folder / "pigeon-1.0.dist-info").mkdir(parents=True)
    (folder / "pigeon-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (folder / "pigeon-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    (folder / "pigeon.py").write_text(PLUGIN)
    (folder / "pigeon_ear.py").write_text("open('imported', 'w').close()\nraise RuntimeError('deaf')")
    (folder / "cracked.py").write_text("1 / 0")
    (folder / "shy.py").write_text("import telethon_is_not_here, nacl.nothing")
    return folder


def found(environ: Mapping[str, str]) -> dict[str, Account]:
    return {account.label: account for account in accounts(load(environ=environ))}


def path_with(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def listed(folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `turntake channels --json` says where the plug-ins are installed."""
    done = run("channels", "--json", *flags, folder=folder.parent, env=path_with(folder) | dict(env or {}))
    assert done.returncode == 0, done.stderr
    return {"/".join(filter(None, (row["channel"], row["account"]))): row for row in json.loads(done.stdout)}


def believes(channel: Channel, signer: Channel) -> bool:
    try:
        channel.verify(signer.sample("hi", sender="1", id="2", url=URL, now=NOW), NOW)
    except Forged:
        return False
    return True


def test_all_channels_are_there_from_the_start() -> None:
    """Unconfigured ones too: they are served, and refuse."""
    all_accounts = found({})
    assert sorted(all_accounts) == OURS
    assert {account.status for account in all_accounts.values()} == {"not configured"}
    assert sorted(channels_of(all_accounts.values())) == [(name, "") for name in OURS]
    assert reply_apis_of(all_accounts.values()) == {}
    assert listeners_of(all_accounts.values()) == {}


@pytest.mark.parametrize(
    ("label", "environ", "status"),
    [
        ("whatsapp", META | {"TURNTAKE_WHATSAPP_ACCESS_TOKEN": "t"}, "ready"),
        ("whatsapp", META, "receives only"),
        ("whatsapp", META | {"TURNTAKE_WHATSAPP_VERIFY_TOKEN": "no"}, "receives only"),
        (
            "whatsapp",
            {"TURNTAKE_WHATSAPP_APP_SECRET": "x"},
            "incomplete: TURNTAKE_WHATSAPP_VERIFY_TOKEN is missing",
        ),
        (
            "whatsapp",
            {"TURNTAKE_WHATSAPP_API_BASE": "https://proxy.example"},
            "incomplete: TURNTAKE_WHATSAPP_APP_SECRET and TURNTAKE_WHATSAPP_VERIFY_TOKEN are missing",
        ),
        (
            "whatsapp",
            META | {"TURNTAKE_WHATSAPP_API_BASE": "nowhere"},
            "broken: TURNTAKE_WHATSAPP_API_BASE is not an address",
        ),
        (
            "whatsapp/sales",
            META | {"TURNTAKE_WHATSAPP_ACCOUNTS": "sales", "TURNTAKE_WHATSAPP_SALES_APP_SECRET": "x"},
            "incomplete: TURNTAKE_WHATSAPP_SALES_VERIFY_TOKEN is missing",
        ),
        ("generic", {"TURNTAKE_GENERIC_SECRET": "whsec_c2VjcmV0"}, "receives only"),
        (
            "generic",
            {"TURNTAKE_GENERIC_SECRET": "whsec_c2VjcmV0", "TURNTAKE_GENERIC_CALLBACK_URL": "https://x.example"},
            "ready",
        ),
        ("generic", {"TURNTAKE_GENERIC_SCHEME": "rot13"}, "broken: The scheme of the generic channel is one of"),
        ("discord", DISCORD, "incomplete: TURNTAKE_DISCORD_PUBLIC_KEY is missing"),
        ("discord", DISCORD | {"TURNTAKE_DISCORD_GATEWAY": "true"}, "ready"),
        (
            "discord",
            DISCORD | {"TURNTAKE_DISCORD_GATEWAY": "off"},
            "incomplete: TURNTAKE_DISCORD_PUBLIC_KEY is missing",
        ),
        ("telegram", TYPING, "ready"),
        (
            "telegram",
            {**TYPING, "TURNTAKE_TELEGRAM_TYPING_SESSION": "x", "TURNTAKE_TELEGRAM_SECRET_TOKEN": ""},
            "incomplete: TURNTAKE_TELEGRAM_SECRET_TOKEN is missing",
        ),
        ("slack/eu", {"TURNTAKE_SLACK_ACCOUNTS": "eu"}, "incomplete: TURNTAKE_SLACK_EU_SIGNING_SECRET is missing"),
    ],
)
def test_an_accounts_status_says_what_it_can_do(label: str, environ: dict[str, str], status: str) -> None:
    assert found(environ)[label].status.startswith(status)


def test_what_is_missing_is_told_by_its_use() -> None:
    assert found({})["whatsapp"].missing == {
        "verify": ("TURNTAKE_WHATSAPP_APP_SECRET", "TURNTAKE_WHATSAPP_VERIFY_TOKEN"),
        "reply": ("TURNTAKE_WHATSAPP_ACCESS_TOKEN",),
    }
    assert found(TYPING)["telegram"].missing == {"listen": ("TURNTAKE_TELEGRAM_TYPING_SESSION",)}
    assert found({})["generic"].missing["reply"] == ("TURNTAKE_GENERIC_CALLBACK_URL",)


def test_an_account_believes_only_its_own_secret() -> None:
    """And one without a secret believes nobody, not even those who know the main account's."""
    names = {"TURNTAKE_WHATSAPP_ACCOUNTS": "sales,idle", "TURNTAKE_WHATSAPP_SALES_APP_SECRET": "other"}
    channels = channels_of(accounts(load(environ=META | names)))
    main_one, sales, idle = (channels["whatsapp", name] for name in ("", "sales", "idle"))
    assert [believes(channel, main_one) for channel in (main_one, sales, idle)] == [True, False, False]
    assert [believes(channel, sales) for channel in (main_one, sales, idle)] == [False, True, False]
    assert found(META | names)["whatsapp/sales"].path == "/webhooks/whatsapp/sales"


def test_only_complete_accounts_can_reply() -> None:
    environ = {
        "TURNTAKE_WHATSAPP_ACCOUNTS": "sales idle",
        "TURNTAKE_WHATSAPP_ACCESS_TOKEN": "t",
        "TURNTAKE_WHATSAPP_SALES_ACCESS_TOKEN": "t",
        "TURNTAKE_WHATSAPP_SALES_API_BASE": "https://proxy.example",
        "TURNTAKE_SLACK_SIGNING_SECRET": "x",
    }
    assert sorted(reply_apis_of(accounts(load(environ=environ)))) == [("whatsapp", ""), ("whatsapp", "sales")]


def test_only_complete_accounts_listen() -> None:
    assert listeners_of(accounts(load(environ=TYPING))) == {}
    complete = TYPING | {"TURNTAKE_TELEGRAM_TYPING_SESSION": "file"}
    assert list(listeners_of(accounts(load(environ=complete)))) == [("telegram", "")]


def test_a_value_that_cannot_be_right_stops_the_start() -> None:
    """It is listed like the others, but serving without what was configured would hide the mistake."""
    broken = accounts(load(environ={"TURNTAKE_GENERIC_ACCOUNTS": "b", "TURNTAKE_GENERIC_B_SCHEME": "rot13"}))
    with pytest.raises(ConfigurationError, match="generic/b: The scheme of"):
        channels_of(broken)


def test_the_command_lists_channels(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (META | {"TURNTAKE_WHATSAPP_ACCOUNTS": "sales"}).items():
        monkeypatch.setenv(name, value)
    assert main(["channels", "--public-url", "https://bot.example/"]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert ["whatsapp", "receives", "only", "https://bot.example/webhooks/whatsapp"] in rows
    assert ["whatsapp", "to", "reply", "TURNTAKE_WHATSAPP_ACCESS_TOKEN"] in rows
    assert ["whatsapp/sales", "to", "reply", "TURNTAKE_WHATSAPP_SALES_ACCESS_TOKEN"] in rows
    assert "s3cret" not in said
    assert main(["channels", "--port", "81"]) == 0
    assert "http://127.0.0.1:81/webhooks/whatsapp/sales" in capsys.readouterr().out


def test_the_command_says_what_is_odd(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was misspelled, and that nobody can call an address of this machine."""
    monkeypatch.setenv("TURNTAKE_WHATSAP_APP_SECRET", "s3cret")
    assert main(["channels"]) == 0
    said = capsys.readouterr().out
    assert "TURNTAKE_WHATSAP_APP_SECRET is ignored: " in said
    assert "did you mean TURNTAKE_WHATSAPP_APP_SECRET?" in said
    assert "Platforms cannot call these addresses: set TURNTAKE_PUBLIC_URL.\n" in said
    assert main(["channels", "--public-url", "https://bot.example"]) == 0
    assert "cannot call" not in capsys.readouterr().out


def test_the_command_says_what_those_that_are_configured_lack(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them only as long as none is configured."""
    assert main(["channels"]) == 0
    assert "TURNTAKE_TWILIO_AUTH_TOKEN" in capsys.readouterr().out
    monkeypatch.setenv("TURNTAKE_SLACK_BOT_TOKEN", "x")
    assert main(["channels"]) == 0
    said = capsys.readouterr().out
    assert "TURNTAKE_SLACK_SIGNING_SECRET" in said
    assert "TURNTAKE_TWILIO_AUTH_TOKEN" not in said


@pytest.mark.parametrize("name", OURS)
def test_a_channel_brings_its_guide(name: str, capsys: Output) -> None:
    """Who installed the wheel has no docs folder."""
    assert main(["channels", name]) == 0
    said = capsys.readouterr().out
    assert said.startswith((ROOT / "docs" / "channels" / f"{name}.md").read_text())
    assert f"TURNTAKE_{name.upper()}_API_BASE" in said or name == "generic"
    state = said[said.index("CHANNEL  ") :]
    assert f"http://127.0.0.1:8080/webhooks/{name}" in state
    assert state.count("/webhooks/") == 1


def test_a_channel_that_there_is_not_is_named(capsys: Output) -> None:
    assert main(["channels", "whatsap"]) == 2
    assert capsys.readouterr().err == "turntake: No channel is called whatsap; did you mean whatsapp?\n"
    assert main(["channels", "fax"]) == 2
    assert "No channel is called fax; there are: discord, generic, " in capsys.readouterr().err


def test_the_command_speaks_json(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_SLACK_BOT_TOKEN", "xoxb-hidden")
    assert main(["channels", "--json"]) == 0
    said = capsys.readouterr().out
    (slack,) = [row for row in json.loads(said) if row["channel"] == "slack"]
    assert slack == {
        "channel": "slack",
        "account": "",
        "status": "incomplete: TURNTAKE_SLACK_SIGNING_SECRET is missing",
        "webhookUrl": "http://127.0.0.1:8080/webhooks/slack",
        "missing": {"verify": ["TURNTAKE_SLACK_SIGNING_SECRET"]},
        "page": "docs/channels/slack.md",
    }
    assert "xoxb-hidden" not in said


def test_a_plug_in_is_a_channel_like_ours(plugins: Path) -> None:
    """Its options are variables, flags and lines in the file; its listener is not even imported before it is wanted."""
    (plugins.parent / "turntake.toml").write_text(
        '[carrier-pigeon]\naccounts = ["b"]\n[carrier-pigeon.b]\nloft = "x"\n'
    )
    env = {"TURNTAKE_CARRIER_PIGEON_RING": "x", "TURNTAKE_CARRIER_PIGEON_B_RING": "y"}
    rows = listed(plugins, "--carrier-pigeon-loft", "roof", env=env)
    assert (rows["carrier-pigeon"]["status"], rows["carrier-pigeon/b"]["status"]) == ("ready", "ready")
    assert rows["carrier-pigeon"]["missing"] == {"listen": ["TURNTAKE_CARRIER_PIGEON_EAR"]}
    assert rows["carrier-pigeon"]["page"] == ""
    assert not Path("imported").exists()
    rows = listed(plugins, "--carrier-pigeon-ear", "yes", env=env)
    assert rows["carrier-pigeon"]["status"] == "broken: it cannot be imported (RuntimeError: deaf)"
    (plugins / "pigeon_ear.py").write_text(LISTENER)
    assert listed(plugins, "--carrier-pigeon-ear", "yes", env=env)["carrier-pigeon"]["status"] == "receives only"


def test_broken_plug_ins_break_nothing_else(plugins: Path) -> None:
    rows = listed(plugins)
    imported = "broken: it cannot be imported"
    assert {name: rows[name]["status"] for name in ("cracked", "gone", "log", "mute", "number", "shy", "whatsapp")} == {
        "cracked": f"{imported} (ZeroDivisionError: division by zero)",
        "gone": f"{imported} (ModuleNotFoundError: No module named 'gone')",
        "log": "broken: a channel cannot have this name; its author must choose another",
        "mute": "broken: its replies cannot be used: it is not a turntake.platforms.replies.ReplyApi",
        "number": "broken: it is not a turntake.platforms.channel.Channel",
        "shy": f"{imported} (ModuleNotFoundError: No module named 'telethon_is_not_here')",
        "whatsapp": "not configured",
    }


def test_of_two_plug_ins_with_one_name_the_first_is_always_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = [EntryPoint("twin", value, "turntake.channels") for value in ("json:dumps", "json:loads")]
    monkeypatch.setattr(adapters, "entry_points", lambda group: EntryPoints(twins))
    assert adapters.load_all("channels") == {"twin": adapters.load("channels", "twin")} == {"twin": json.dumps}
    assert adapters.names("channels") == ("twin",)


def test_a_missing_extra_is_named(plugins: Path) -> None:
    """And what was set for the channel is warned about, and stops nothing."""
    (plugins / "shy.py").write_text(
        "from turntake.plugins import extra\nwith extra('discord'):\n    import a_library_that_is_not_there\n"
    )
    (plugins.parent / "turntake.toml").write_text('[shy]\nx = "y"\n')
    why = str(MissingExtra("discord"))
    env = path_with(plugins) | {"TURNTAKE_SHY_SECRET": "x"}
    assert listed(plugins)["shy"]["status"] == f"needs an extra: {why}"
    (plugins / "pigeon_ear.py").write_text(
        "from turntake.plugins import extra\nwith extra('discord-gateway'):\n    import a_library_that_is_not_there\n"
    )
    pigeon = listed(plugins, "--carrier-pigeon-ear", "yes")["carrier-pigeon"]
    assert pigeon["status"] == f"needs an extra: {MissingExtra('discord-gateway')}"
    said = json.loads(run("doctor", "--json", "--port", "0", folder=plugins.parent, env=env).stdout)
    warned = [check["says"] for check in said["checks"] if check["about"] == "environment"]
    assert warned == [f"[shy] in turntake.toml is ignored: {why}", f"TURNTAKE_SHY_SECRET is ignored: {why}"]


@pytest.mark.parametrize(
    ("library", "extra", "reference"),
    [
        ("nacl", "discord", "turntake.platforms.discord.webhooks:Discord"),
        ("discord", "discord-gateway", "turntake.platforms.discord.gateway:DiscordGateway"),
        ("telethon", "telegram-typing", "turntake.platforms.telegram.typing:TelegramTyping"),
    ],
)
def test_our_own_channels_name_their_extras(library: str, extra: str, reference: str) -> None:
    """Each module that needs a library beyond the core's says itself which extra brings it."""
    code = (
        f"import sys; sys.modules[{library!r}] = None\nfrom turntake import plugins; plugins.load_class({reference!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"MissingExtra: {MissingExtra(extra)}" in done.stderr


def test_accounts_that_share_a_secret_are_told_apart_by_nothing() -> None:
    """A webhook for one of them would be believed at the address of the other. Handshakes prove nothing of the kind."""
    shop = {"TURNTAKE_WHATSAPP_ACCOUNTS": "shop", "TURNTAKE_WHATSAPP_SHOP_VERIFY_TOKEN": "v"}
    main = {"TURNTAKE_WHATSAPP_APP_SECRET": "one, two", "TURNTAKE_WHATSAPP_VERIFY_TOKEN": "v"}
    alike = found(main | shop | {"TURNTAKE_WHATSAPP_SHOP_APP_SECRET": "three,two"})
    (sentence,) = shared_secrets(alike.values())
    assert sentence.startswith("TURNTAKE_WHATSAPP_APP_SECRET and TURNTAKE_WHATSAPP_SHOP_APP_SECRET are the same")
    assert shared_secrets(found(main | shop | {"TURNTAKE_WHATSAPP_SHOP_APP_SECRET": "three"}).values()) == []


def test_accounts_may_share_a_secret_where_the_address_is_signed() -> None:
    shop = {"TURNTAKE_TWILIO_ACCOUNTS": "shop", "TURNTAKE_TWILIO_SHOP_AUTH_TOKEN": "t"}
    assert shared_secrets(found({"TURNTAKE_TWILIO_AUTH_TOKEN": "t"} | shop).values()) == []


def test_a_platform_is_told_where_to_report_only_if_the_address_is_public() -> None:
    twilio = {"TURNTAKE_TWILIO_AUTH_TOKEN": "t", "TURNTAKE_TWILIO_ACCOUNT_SID": "AC1", "TURNTAKE_TWILIO_ACCOUNTS": "eu"}
    for public_url, told in (("https://bot.example/", "https://bot.example/webhooks/twilio"), ("", "")):
        options = load(environ=twilio | ({"TURNTAKE_PUBLIC_URL": public_url} if public_url else {}))
        outbound = outbound_of(options, accounts(options))
        assert isinstance(outbound, Replies)
        assert {name: api.webhook_url for name, api in outbound.apis.items()} == {("twilio", ""): told}


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://proxy.example/bot", False),
        ("http://127.0.0.1:9/bot", False),
        ("http://[::1]:9", False),
        ("http://localhost:9", False),
        ("http://telegram.internal:8081", False),
        ("http://proxy.example/bot", True),
        ("HTTP://192.168.0.7/", True),
    ],
)
def test_tokens_are_not_sent_over_plain_http_to_others(url: str, is_refused: bool) -> None:
    """Whoever writes the settings of this folder may not be whoever has the token in the environment."""
    environ = {"TURNTAKE_TELEGRAM_API_BASE": url, "TURNTAKE_REPLIES_PRIVATE_HOSTS": "telegram.internal"}
    (telegram,) = [account for account in accounts(load(environ=environ)) if account.label == "telegram"]
    assert (telegram.channel is None) == is_refused
    assert ("TURNTAKE_TELEGRAM_API_BASE sends tokens over plain http" in telegram.fault) == is_refused


def test_accounts_may_have_a_tenant_and_an_agent() -> None:
    """Set like any option of theirs; no channel has to know of it, and it configures none by itself."""
    Path("turntake.toml").write_text(
        '[telegram]\naccounts = ["sales"]\nagent = "helper"\n[telegram.sales]\ntenant = "acme"\n[slack]\ntenant = ""\n'
    )
    options = load(environ={"TURNTAKE_TELEGRAM_SALES_AGENT": "closer"})
    found = accounts(options)
    assert homes_of(found) == {("telegram", ""): Home("", "helper"), ("telegram", "sales"): Home("acme", "closer")}
    (telegram,) = [account for account in found if account.id == ("telegram", "")]
    assert telegram.status == "not configured"


def test_a_tenant_that_there_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"telegram: `tenant` contains control characters"):
        homes_of(accounts(load(environ={"TURNTAKE_TELEGRAM_TENANT": "a\x01"})))


def test_an_option_of_a_channel_by_the_same_name_is_the_channels() -> None:
    class Radio(Channel):
        name = "radio"
        options = (Option("tenant", "Of the platform.", is_secret=False),)

    plugin = ChannelPlugin("radio", Radio)
    assert [option.sentence for option in plugin.options if option.name == "tenant"] == ["Of the platform."]
    assert [option.name for option in plugin.home] == ["agent"]
    assert homes_of([Account(plugin, values={"tenant": "theirs", "agent": "ours"})]) == {
        ("radio", ""): Home("", "ours")
    }
