"""Secrets that somebody could guess: too short, or known from an example. Pure.

A server that only this machine reaches starts with them and warns, since people try things out with `secret`. One that
others reach does not start with a weak one that its operator made up; a platform's own secrets are only warned about. A
list in which one secret is too short beside others that are not is refused anywhere: a comma within a secret cuts it in
two, and the shorter half would open the door.
"""

import base64
import binascii
from collections.abc import Iterator

from turntake.errors import ConfigurationError
from turntake.http.hosts import is_loopback
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import env_of
from turntake.standard_webhooks import PREFIX, secrets_in

# Of 16 random characters nobody guesses one, at any rate that a server answers; platforms' own secrets are longer.
SHORTEST = 16
# Standard Webhooks asks for 24 to 64 bytes.
SHORTEST_SIGNING_KEY = 24
EXAMPLES = frozenset(
    {
        "change-me",
        "changeme",
        "change_me",
        "change-me-please",
        "password",
        "secret",
        "my-secret-key",
        "your-secret-here",
    }
    | {"your_key_here", "your-api-key", "your-api-key-here", "my-verify-token", "your-verify-token", "example"}
    | {"0123456789abcdef", "1234567890123456", "aaaaaaaaaaaaaaaa", "correct-horse-battery-staple", "supersecretsecret"}
)
ADVICE = "make one with `openssl rand -hex 32`"
GIVEN_ADVICE = "copy what the platform gave you"


def refuse_weak_secrets(options: Options) -> None:
    """Raises ConfigurationError for a secret that must not be used where these options serve."""
    is_reached = bool(options.public_url) or not is_loopback(options.host)
    for variable, values, is_chosen in _secrets(options):
        weak = [why for value in values if (why := why_weak(value))]
        is_cut = weak and len(weak) < len(values)
        if weak and (is_cut or (is_reached and is_chosen)):
            cut = (
                " It holds several secrets, separated by commas: is one of the commas part of a secret?"
                if is_cut
                else ""
            )
            raise ConfigurationError(f"{variable} {weak[0]}: {ADVICE if is_chosen else GIVEN_ADVICE}.{cut}")


def weak_secrets(options: Options) -> list[str]:
    """One warning for all that are weak, for a server that only this machine reaches."""
    weak = [
        f"{variable} ({ADVICE if is_chosen else GIVEN_ADVICE})"
        for variable, values, is_chosen in _secrets(options)
        if any(map(why_weak, values))
    ]
    return [f"Easy to guess: {', '.join(weak)}. Change that before others reach this server."] if weak else []


def why_weak(secret: str) -> str:
    """Why somebody could guess it, in words that follow its name; "" if nobody can."""
    if secret.lower() in EXAMPLES:
        return "is an example that everybody knows"
    if secret.startswith(PREFIX):
        size = _size(secret.removeprefix(PREFIX))
        return f"is shorter than {SHORTEST_SIGNING_KEY} bytes" if size < SHORTEST_SIGNING_KEY else ""
    return f"is shorter than {SHORTEST} characters" if len(secret) < SHORTEST else ""


def _secrets(options: Options) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """The variables of all secrets by which others are believed, what is set there, and whether the operator chose."""
    yield env_of("api_keys"), options.api_keys, True
    yield env_of("agent_secret"), secrets_in(options.agent_secret), True
    for account in options.accounts:
        for option in account.plugin.options:
            if option.use == "verify" and option.is_secret:
                yield account.variables[option.name], secrets_in(account.values[option.name]), option.is_chosen


def _size(written: str) -> int:
    try:
        return len(base64.b64decode(written + "=" * (-len(written) % 4)))
    except (binascii.Error, ValueError):
        return 0
