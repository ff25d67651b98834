"""`turntake init`: a settings file that explains itself, and an agent to start from."""

from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App

from turntake.errors import ConfigurationError
from turntake.operate.cli.flags import switch
from turntake.operate.cli.output import paint, say
from turntake.operate.options.catalogue import catalogue
from turntake.operate.options.settings import Setting
from turntake.operate.options.sources import CONFIG_FILE

AGENT_FILE = "agent.py"
PRIVATE = 0o600  # a settings file may come to hold a password, in the store's URL
AGENT = '''"""Answers one turn at a time: everything the person said before they fell silent."""

from turntake import Turn


async def answer(turn: Turn) -> str:
    # Ask your model here; `turn.text` is all messages, a line each, and `turn.id` never changes across retries.
    return f"You sent {len(turn.messages)} message(s):\\n{turn.text}"
'''

app = App(
    name="init",
    help_epilogue="""
Examples:

    turntake init            write turntake.toml and agent.py here
    turntake init --force    replace them by fresh ones
""",
)


@app.default
def init(*, force: Annotated[bool, switch("Replace files that exist.")] = False) -> None:
    """Write a commented turntake.toml and an example agent into this folder."""
    if Path(CONFIG_FILE).exists() and not force:
        raise ConfigurationError(f"{CONFIG_FILE} exists already: edit it, or replace it with turntake init --force.")
    _write(CONFIG_FILE, toml(agent="agent:answer"))
    if force or not Path(AGENT_FILE).exists():
        _write(AGENT_FILE, AGENT)
    else:
        say(f"kept   {AGENT_FILE}, which was there already")
    say()
    say("Next:")
    for command, purpose in (
        ("turntake doctor", "check that all is well"),
        ("turntake serve", "start the server with agent.py"),
        ('turntake send --follow "hi" "are you open?"', "in a second terminal"),
    ):
        say(f"  {paint('bold', command.ljust(44))}  {purpose}")


def toml(**chosen: Any) -> str:
    """The settings file: every setting with its sentence, commented out unless it is among the chosen."""
    lines = [
        "# Settings of turntake. A line that starts with # shows the default.",
        "# The environment comes first: [rules] silence_ms is TURNTAKE_RULES_SILENCE_MS there, and a flag comes before",
        "# both. Secrets (TURNTAKE_API_KEYS, TURNTAKE_WHATSAPP_APP_SECRET, …) are never read from this file: set them",
        "# in the environment, or in a file called .env. Rules for some only go under [rules.tenant.acme], and so for",
        "# a platform, an agent or a conversation; each says what differs.",
    ]
    writable = [setting for setting in catalogue().settings if not setting.is_secret]
    for section, settings in groupby(writable, key=lambda setting: setting.section):
        lines += ["", f"[{section}]"] if section else []
        for setting in settings:
            lines += ["", *_entry(setting, chosen)]
    return "\n".join(lines) + "\n"


def _entry(setting: Setting, chosen: dict[str, Any]) -> list[str]:
    is_chosen = setting.key in chosen
    value = msgspec.json.encode(chosen.get(setting.key, setting.default)).decode()
    return [f"# {setting.sentence}", f"{'' if is_chosen else '# '}{setting.name} = {value}"]


def _write(name: str, text: str) -> None:
    try:
        Path(name).touch(PRIVATE)  # a file that is there keeps its rights
        Path(name).write_text(text)
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written here ({error.strerror}).") from None
    say(f"wrote  {name}")
