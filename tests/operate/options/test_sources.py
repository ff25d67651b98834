"""Values from flags, environment, file, preset and default, in that order; and every mistake in them is named."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from turntake.errors import ConfigurationError
from turntake.operate.options.catalogue import catalogue
from turntake.operate.options.groups import Options
from turntake.operate.options.sources import load
from turntake.rules.key import ConversationKey
from turntake.rules.rules import PRESETS, Rules
from turntake.rules.scopes import RuleBook

BY_KEY = catalogue().by_key


def written(text: str, name: str = "turntake.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def values_of(options: Options, channel: str, account: str = "") -> Mapping[str, str]:
    (values,) = [a.values for a in options.accounts if (a.plugin.name, a.name) == (channel, account)]
    return values


def complaint(**sources: object) -> str:
    with pytest.raises(ConfigurationError) as raised:
        load(**{"environ": {}, **sources})  # type: ignore[arg-type]
    return str(raised.value)


def test_defaults() -> None:
    """With nothing set, everything has the documented default."""
    options = load(environ={})
    assert options.store == "sqlite:///turntake.db"
    assert (options.host, options.port, options.agent, options.role) == (
        "127.0.0.1",
        8080,
        "echo",
        "all",
    )
    assert (options.worker.concurrency, options.worker.lease_ms) == (100, 60_000)
    assert options.rules == Rules()
    assert {given.origin for given in options.sources.values.values()} == {"default"}


def test_flag_beats_environment_beats_file_beats_preset_beats_default() -> None:
    written('port = 1\nhost = "a.localhost"\n[rules]\npreset = "interview"\nsilence_ms = 7\n[log]\nlevel = "debug"\n')
    environ = {"TURNTAKE_PORT": "2", "TURNTAKE_HOST": "b.localhost"}
    options = load({"port": "3", "role": None}, environ=environ)
    assert (options.port, options.host, options.log.level) == (3, "b.localhost", "debug")
    assert options.rules.silence_ms == 7
    assert options.rules.typing_inference_ms == PRESETS["interview"].typing_inference_ms
    assert options.rules.max_wait_ms == Rules().max_wait_ms
    origins = [
        options.sources.values[key].origin for key in ("port", "host", "log.level", "rules.typing_inference_ms", "role")
    ]
    assert origins == ["--port", "TURNTAKE_HOST", "turntake.toml", "preset interview", "default"]


def test_phrases_are_separated_by_commas_alone() -> None:
    written(
        '[rules]\nstop_words = ["stop", "that is enough"]\n[rules.tenant.acme]\nhold_words = ["@de", "warte, bitte"]\n'
    )
    environ = {"TURNTAKE_RULES_HOLD_WORDS": " one  moment, @en ,,hold on a sec"}
    options = load({"rules.flush_words": "that's all"}, environ=environ)
    assert options.rules.stop_words == ("stop", "that is enough")
    assert options.rules.hold_words == ("one moment", "@en", "hold on a sec")
    assert options.rules.flush_words == ("that's all",)
    theirs = RuleBook(options.layers).rules_for(ConversationKey.of("a", tenant="acme"))
    assert theirs.hold_words == ("@de", "warte, bitte")


def test_a_list_of_phrases_in_brackets_is_refused_outside_the_file() -> None:
    """Else the brackets would be part of a word that nobody says."""
    with pytest.raises(ConfigurationError, match=r"stop_words in TURNTAKE_RULES_STOP_WORDS: brackets are for TOML"):
        load(environ={"TURNTAKE_RULES_STOP_WORDS": ' ["@en"]'})


def test_empty_variable_counts_as_not_set() -> None:
    assert load(environ={"TURNTAKE_PORT": ""}).port == 8080


def test_named_file_is_read_instead() -> None:
    written("port = 1\n")
    assert load(config=written("port = 2\n", "other.conf"), environ={}).port == 2


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("1", True), ("0", False), ("True", True)]
)
def test_texts_become_types(text: str, value: bool) -> None:
    assert load(environ={"TURNTAKE_RULES_ENABLED": text}).rules.enabled is value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[rules]\nsilence_ms = "abc"',
            'rules.silence_ms = "abc" in turntake.toml: expected an integer of milliseconds',
        ),
        (
            "[rules]\nsilence_ms = -1",
            "rules.silence_ms = -1 in turntake.toml: expected an integer of milliseconds from 0",
        ),
        ('port = "8080"', 'port = "8080" in turntake.toml: expected an integer from 0 to 65535.'),
        ("port = [1]", "port = [1] in turntake.toml: expected an integer"),
        ("[rules]\nenabled = 3", "rules.enabled = 3 in turntake.toml: expected true or false."),
        (
            '[rules]\non_busy = "drop"',
            'rules.on_busy = "drop" in turntake.toml: expected one of "queue", "interrupt", "',
        ),
        ("[rules]\non_busy = [1]", "rules.on_busy = [1] in turntake.toml: expected one of"),
        ("store = 2026-11-15", 'store = "2026-11-15" in turntake.toml: expected a text.'),
        ("stoer = 1", "stoer in turntake.toml: there is no such setting; did you mean store?"),
        ("[rules]\nsilnce_ms = 1", "there is no such setting; did you mean rules.silence_ms?"),
        ("zzz = 1", "zzz in turntake.toml: there is no such setting; `turntake doctor --all` lists them."),
        ("[wroker]\nx = 1", "[wroker] in turntake.toml: there is no such section; did you mean worker?"),
        ('[agent]\nurl = "x"', "[agent] in turntake.toml: `agent` is a single value, written agent = ..."),
        ("[worker.deep]\nx = 1", "worker.deep in turntake.toml: there is no such setting"),
        ("[rules]\npriority = 11", "rules.priority = 11 in turntake.toml: expected an integer from -10 to 10."),
        ('[rules]\non_stale = "keep"', 'rules.on_stale = "keep" in turntake.toml: expected one of "send", "discard"'),
        (
            "[rules.tenant]\nsilence_ms = 1",
            "[rules.tenant] in turntake.toml: say which tenant it is for, as in [rules.",
        ),
        ("[rules.tenant.acme.x]\nsilence_ms = 1", "rules.tenant.acme.x in turntake.toml: there is no such setting"),
        ("[rules.tenant.acme]\nsilnce_ms = 1", "such setting; did you mean rules.tenant.acme.silence_ms?"),
        ("[rules.tenant.acme]\nsilence_ms = -1", "rules.tenant.acme.silence_ms = -1 in turntake.toml: expected an int"),
        ("[rules.platform.slack]\nshare = 5", "share is about a tenant as a whole: set it for the tenant or for all"),
        ('[rules.agent.x]\npreset = "quick"', 'rules.agent.x.preset = "quick" in turntake.toml: expected one of'),
        (
            '[rules.conversation."a"]\nsilence_ms = 1',
            "[rules.conversation.a] in turntake.toml: A conversation key reads",
        ),
        ('[rules.tenant.""]\nsilence_ms = 1', "[rules.tenant.] in turntake.toml: Which tenant? Its id is empty."),
        ("[rules.teannt.acme]\nsilence_ms = 1", "rules.teannt in turntake.toml: there is no such setting"),
        (
            "[rules]\nmax_messages = 5\n[rules.tenant.acme]\nmin_messages = 6",
            "rules: min_messages is above max_messages: lower one or raise the other. So it would be for [default] and",
        ),
        ("rules = 5", "rules in turntake.toml: there is no such setting; did you mean "),
        ("port = {a = 1}", "[port] in turntake.toml: `port` is a single value, written port = ..."),
        ("[rules]\nsilence_ms = {a = 1}", 'rules.silence_ms = {"a":1} in turntake.toml: expected an integer'),
        ("[generic.x.y]\nz = 1", "[generic.x] in turntake.toml: there is no such account"),
        ('agent_secret = "x"', "secrets do not belong in this file; set TURNTAKE_AGENT_SECRET, or"),
        ('api_keys = ["x"]', "secrets do not belong in this file; set TURNTAKE_API_KEYS"),
        ('[generic]\nsecret = "x"', "set TURNTAKE_GENERIC_SECRET, or TURNTAKE_GENERIC_SECRET_FILE to a path."),
        ("[rules]\nsilence_ms = 5000\nmax_wait_ms = 1000", "rules: silence_ms (5000) is above max_wait_ms (1000)"),
        ("[rules]\nwindow_ms = 60000", "rules: window_ms (60000) is above max_wait_ms (30000)"),
        ('public_url = "my.host"', 'public_url = "my.host" in turntake.toml: write the whole address with its scheme'),
        ("[rules]\nmin_messages = 30", "rules: min_messages is above max_messages: lower one or raise the other."),
        ("port = = 1", "turntake.toml is not valid TOML: "),
    ],
)
def test_mistakes_in_the_file_are_named(text: str, says: str) -> None:
    """The message names the setting, the file, and what is allowed."""
    written(text)
    assert says in complaint()


def test_nobody_is_led_to_write_a_secret_into_the_file() -> None:
    """The nearest name would be refused too."""
    written('agent_secrt = "hunter2"')
    assert "agent_secret" not in complaint()


def test_a_secret_is_not_repeated_in_the_message() -> None:
    written('agent_secret = "hunter2"')
    assert "hunter2" not in complaint()


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"TURNTAKE_PORT": "x"}, 'port = "x" in TURNTAKE_PORT: expected an integer from 0 to 65535.'),
        ({"TURNTAKE_RULES_ON_BUSY": "drop"}, 'rules.on_busy = "drop" in TURNTAKE_RULES_ON_BUSY: expected one of'),
        ({"TURNTAKE_RULES_PRESET": "x"}, '"complex-inquiry"'),
        ({"TURNTAKE_RULES_STOP_WORDS": "stop, @xx"}, 'stop_words has "@xx": there are lists of our own for "@de"'),
        ({"TURNTAKE_RULES_STOP_WORDS": "stop," + "x" * 101}, "expected a list of texts"),
        ({"TURNTAKE_API_KEYS": "a", "TURNTAKE_API_KEYS_FILE": "b"}, "are both set: unset one of them."),
        ({"TURNTAKE_API_KEYS_FILE": "gone"}, "TURNTAKE_API_KEYS_FILE = gone: the file cannot be read"),
    ],
)
def test_mistakes_in_the_environment_are_named(environ: dict[str, str], says: str) -> None:
    assert says in complaint(environ=environ)


def test_mistakes_in_flags_are_named() -> None:
    assert complaint(flags={"log.level": "loud"}).startswith(
        'log.level = "loud" in --log-level: expected one of "debug"'
    )


def test_missing_config_says_how_to_make_one() -> None:
    assert "gone.toml cannot be read (no such file or directory); `turntake init` writes one." in complaint(
        config=Path("gone.toml")
    )


def test_a_config_in_another_encoding_says_so() -> None:
    Path("turntake.toml").write_bytes("port = 1\n# für alle\n".encode("latin-1"))
    assert complaint() == "turntake.toml is not UTF-8 (line 2): save it in that encoding."


def test_unknown_variables_are_warned_about() -> None:
    """A typo in the environment must not stop a server, and must not pass unseen either."""
    names = ("TURNTAKE_SOTRE", "TURNTAKE_WHATSAPP_APP_SECRT", "TURNTAKE_STORE", "PATH")
    options = load(environ=dict.fromkeys(names, "memory://"))
    assert options.sources.warnings == (
        "TURNTAKE_SOTRE is ignored: there is no such setting; did you mean TURNTAKE_STORE?",
        "TURNTAKE_WHATSAPP_APP_SECRT is ignored: there is no such setting; did you mean TURNTAKE_WHATSAPP_APP_SECRET?",
    )


def test_rules_for_a_platform_that_is_probably_misspelled_are_warned_about() -> None:
    """They may be meant for a channel of one's own, so they are no error."""
    written("[rules.platform.whatsap]\nsilence_ms = 700\n[rules.platform.my-chat]\nsilence_ms = 700\n")
    assert load(environ={}).sources.warnings == (
        "[rules.platform.whatsap] in turntake.toml: there is no channel of that name; did you mean whatsapp?",
    )


def test_secrets_come_from_the_environment_or_a_file() -> None:
    written("one\ntwo\n", "keys")
    written(" whsec_a whsec_b\n", "secrets")
    assert load(environ={"TURNTAKE_AGENT_SECRET_FILE": "secrets"}).agent_secret == "whsec_a whsec_b"
    assert load(environ={"TURNTAKE_API_KEYS": " a , b,"}).api_keys == ("a", "b")
    options = load(environ={"TURNTAKE_API_KEYS_FILE": "keys", "TURNTAKE_AGENT_SECRET": "whsec_x"})
    assert options.api_keys == ("one", "two")
    assert options.agent_secret == "whsec_x"
    assert options.sources.values["api_keys"].origin == "TURNTAKE_API_KEYS_FILE"


def test_an_account_has_settings_of_its_own() -> None:
    """Secrets in the environment or a file of their own, the rest in the TOML file too; nothing is the main one's."""
    written(
        '[whatsapp]\naccounts = ["sales", "eu-west"]\nphone_number_id = "1"\n[whatsapp.sales]\nphone_number_id = "2"'
    )
    written("of a file", "secret")
    environ = {
        "TURNTAKE_WHATSAPP_APP_SECRET": "main",
        "TURNTAKE_WHATSAPP_SALES_APP_SECRET": "sales",
        "TURNTAKE_WHATSAPP_EU_WEST_ACCESS_TOKEN_FILE": "secret",
        "TURNTAKE_WHATSAPP_EU_WEST_API_BASE": "https://proxy.example",
    }
    options = load(environ=environ)
    main, sales, west = (values_of(options, "whatsapp", name) for name in ("", "sales", "eu-west"))
    assert options.sources.warnings == ()
    assert options.sources.values["whatsapp.accounts"].value == ("sales", "eu-west")
    assert [values["phone_number_id"] for values in (main, sales, west)] == ["1", "2", ""]
    assert [values["app_secret"] for values in (main, sales, west)] == ["main", "sales", ""]
    assert west["access_token"] == "of a file"
    assert west["api_base"] == "https://proxy.example"
    assert sales["api_base"] == BY_KEY["whatsapp.api_base"].default
    assert options.sources.is_set("whatsapp.sales.app_secret")
    assert not options.sources.is_set("whatsapp.eu-west.app_secret")
    assert {s.section for s in options.sources.settings} >= {"whatsapp", "whatsapp.sales", "whatsapp.eu-west"}


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        (
            "",
            {"TURNTAKE_WHATSAPP_ACCOUNTS": "Sales"},
            'whatsapp.accounts = "Sales" in TURNTAKE_WHATSAPP_ACCOUNTS: an acc',
        ),
        ("", {"TURNTAKE_WHATSAPP_ACCOUNTS": "a/b"}, "lower-case letters, digits, - and _"),
        ("", {"TURNTAKE_WHATSAPP_ACCOUNTS": "a" * 65}, "64 at most"),
        (
            "",
            {"TURNTAKE_WHATSAPP_ACCOUNTS": "app"},
            "TURNTAKE_WHATSAPP_APP_SECRET is a setting already; choose another",
        ),
        ("", {"TURNTAKE_WHATSAPP_ACCOUNTS": "api-base"}, "TURNTAKE_WHATSAPP_API_BASE is a setting already"),
        ("", {"TURNTAKE_WHATSAPP_ACCOUNTS": "accounts"}, "TURNTAKE_WHATSAPP_ACCOUNTS is a setting already"),
        (
            "",
            {"TURNTAKE_WHATSAPP_ACCOUNTS": "a-b,a_b"},
            "[whatsapp.a_b] and [whatsapp.a-b] would share TURNTAKE_WHATSAPP_A",
        ),
        (
            '[whatsapp]\naccounts = "sales"',
            {},
            'whatsapp.accounts = "sales" in turntake.toml: expected a list of texts.',
        ),
        ("[whatsapp]\naccounts = [1]", {}, "whatsapp.accounts = [1] in turntake.toml: expected a list of texts."),
        (
            "[whatsapp.sales]",
            {},
            "[whatsapp.sales] in turntake.toml: there is no such account; name it in whatsapp.accounts",
        ),
        ('[slack]\naccounts = ["sales"]\n[slack.slaes]', {}, "there is no such account; did you mean sales?"),
        (
            '[slack]\naccounts = ["sales"]\n[slack.sales]\nsigning_secret = "x"',
            {},
            "set TURNTAKE_SLACK_SALES_SIGNING_SECRET, or TURNTAKE_SLACK_SALES_SIGNING_SECRET_FILE to a path.",
        ),
        ('[slack]\naccounts = ["sales"]\n[slack.sales]\napi_bsae = "x"', {}, "did you mean slack.sales.api_base?"),
        ('[slack]\naccounts = ["sales"]\n[slack.sales]\naccounts = ["x"]', {}, "slack.sales.accounts in turntake.toml"),
        ("[slack.api_base]\nx = 1", {}, 'slack.api_base = {"x":1} in turntake.toml: expected a text.'),
        ('[whatsapp]\napp_secret = "x"', {}, "set TURNTAKE_WHATSAPP_APP_SECRET, or TURNTAKE_WHATSAPP_APP_SECRET_FILE"),
        ("[watsapp]\nx = 1", {}, "there is no such section; did you mean whatsapp?"),
    ],
)
def test_mistakes_with_accounts_are_named(text: str, environ: dict[str, str], says: str) -> None:
    written(text)
    assert says in complaint(environ=environ)


def test_for_a_named_account_the_environment_beats_the_file_too() -> None:
    written('[slack]\naccounts = ["sales"]\n[slack.sales]\napi_base = "https://a.example"\n')
    options = load(environ={"TURNTAKE_SLACK_SALES_API_BASE": "https://b.example"})
    assert values_of(options, "slack", "sales")["api_base"] == "https://b.example"
    assert options.sources.values["slack.sales.api_base"].origin == "TURNTAKE_SLACK_SALES_API_BASE"


def test_what_all_accounts_share_sets_none_of_them_up() -> None:
    """Answers to messages that came in by the API may be posted somewhere; webhooks need more than that."""
    options = load(environ={"TURNTAKE_GENERIC_CALLBACK_URL": "http://127.0.0.1:1/"})
    (main,) = (account for account in options.accounts if account.plugin.name == "generic")
    assert (main.values["callback_url"], main.is_set) == ("http://127.0.0.1:1/", False)
    assert any(a.is_set for a in load(environ={"TURNTAKE_GENERIC_SECRET": "whsec_c2VjcmV0"}).accounts)


def test_a_channel_may_be_told_numbers_and_switches() -> None:
    written("[whatsapp]\nphone_number_id = 106540352242922\n[discord]\ngateway = true\n")
    options = load(environ={})
    assert values_of(options, "whatsapp")["phone_number_id"] == "106540352242922"
    assert values_of(options, "discord")["gateway"] == "true"


def test_a_variable_of_an_account_that_nobody_named_is_warned_about() -> None:
    """The nearest name would be the main account's, which is not what was meant."""
    names = ("TURNTAKE_SLACK_SALES_BOT_TOKEN", "TURNTAKE_SLACK_SALES_BOT_TOKEN_FILE")
    why = "is ignored: there is no account 'sales'; name it in TURNTAKE_SLACK_ACCOUNTS."
    assert load(environ=dict.fromkeys(names, "x")).sources.warnings == tuple(f"{name} {why}" for name in names)


@pytest.mark.parametrize("address", ["my.host", "my.host/path", "ftp://my.host", "https://", "http:///", "//my.host"])
def test_a_public_address_needs_its_scheme_and_host(address: str) -> None:
    """Else it would be shown as the address of webhooks, which nobody could call."""
    said = complaint(environ={"TURNTAKE_PUBLIC_URL": address})
    assert said.startswith(f'public_url = "{address}" in TURNTAKE_PUBLIC_URL: write the whole address with its scheme')
    assert load(environ={"TURNTAKE_PUBLIC_URL": "HTTPS://my.host"}).public_url == "HTTPS://my.host"


DOTENV = """
# for both terminals
export TURNTAKE_PORT=9001
TURNTAKE_API_KEYS='one#1,two'   # two keys
TURNTAKE_RULES_SILENCE_MS = "250"
TURNTAKE_AGENT=my_app:answer # mine
TURNTAKE_STORE=memory://#not-a-comment
OPENAI_API_KEY=of somebody else's
{"not": "ours"}
"""


def test_variables_may_stand_in_a_file() -> None:
    """Flags and the environment come before it, turntake.toml after it; other programs' lines are none of ours."""
    written(DOTENV, ".env")
    written('port = 1\nhost = "a.localhost"\n')
    options = load(environ={"TURNTAKE_AGENT": "echo"})
    assert (options.port, options.host, options.agent) == (9001, "a.localhost", "echo")
    assert (options.api_keys, options.rules.silence_ms) == (("one#1", "two"), 250)
    assert options.store == "memory://#not-a-comment"
    assert options.sources.values["port"].origin == "TURNTAKE_PORT in .env"
    assert options.sources.values["agent"].origin == "TURNTAKE_AGENT"
    assert options.sources.warnings == ()
    assert load({"port": "3"}, environ={}).port == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("TURNTAKE_PORT=x", 'port = "x" in TURNTAKE_PORT in .env: expected an integer'),
        ("\nTURNTAKE_AGENT_SECRET='hunter2", ".env, line 2: the quotes do not match"),
        ("API_KEYS: x\nTURNTAKE_API_KEYS: hunter2", ".env, line 2: write NAME=value."),
        (" export TURNTAKE_AGENT_SECRET hunter2", ".env, line 1: write NAME=value."),
    ],
)
def test_mistakes_in_that_file_are_named(text: str, says: str) -> None:
    written(text, ".env")
    assert complaint().startswith(says)
    assert "hunter2" not in complaint()


def test_misspelled_variables_in_that_file_are_warned_about() -> None:
    written("TURNTAKE_SOTRE=memory://", ".env")
    (warning,) = load(environ={}).sources.warnings
    assert warning == "TURNTAKE_SOTRE is ignored: there is no such setting; did you mean TURNTAKE_STORE?"


def test_a_file_that_others_may_write_is_ignored() -> None:
    """It could send secrets and messages elsewhere."""
    written("TURNTAKE_PORT=9001", ".env").chmod(0o666)
    options = load(environ={})
    assert (options.port, options.sources.warnings) == (
        8080,
        (".env is ignored, since others may write it: make it yours (chown, chmod 600).",),
    )
