"""Who sends a request: by an API key of the store or of the settings, the made key, or a turn's completion token."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Scope

from turntake.api_keys import ApiKeys
from turntake.errors import ConfigurationError
from turntake.http.made_key import MadeKey
from turntake.rules.api_keys import ANYBODY, Caller, hash_of

Headers = dict[bytes, bytes]
MADE = Caller("the made key")


class Callers:
    """Knows everybody who may come in. Keys are found by their hashes: how long that takes tells nothing of a key.

    The `api_keys` of the settings may do everything, and so may the made key, which counts only where there are none.
    """

    def __init__(self, keys: ApiKeys, api_keys: Sequence[str] = (), made_key: str = "") -> None:
        if not all(key.strip() for key in api_keys):
            raise ConfigurationError("An API key is blank; remove it or give it a value.")
        self._keys = keys
        self._has_fixed = bool(api_keys)
        self._made = MadeKey(made_key) if made_key and not api_keys else None
        self._fixed = {hash_of(key.strip().encode()): Caller("TURNTAKE_API_KEYS") for key in api_keys}
        if self._made is not None:
            self._fixed[hash_of(made_key.encode())] = MADE

    @property
    def has_made_key(self) -> bool:
        return self._made is not None

    @property
    def are_named(self) -> bool:
        """Whether nobody is served without a key, since somebody set or made one."""
        return self._has_fixed or self._keys.is_needed

    @property
    def are_unknown(self) -> bool:
        """Whether the store could not be asked who they are."""
        return self._keys.is_unreadable

    def of(self, scope: Scope) -> Caller | None:
        """Who sends a request that passed `LoopbackOnly` for where it comes from, or anyhow where that is not there."""
        return self.find(scope) if self.are_named or self.are_unknown else ANYBODY

    def find(self, scope: Scope) -> Caller | None:
        """Who sends a request, by what it carries."""
        headers: Headers = dict(scope["headers"])
        sent = key_in(headers)
        if sent:
            digest = hash_of(sent)
            caller = self._fixed.get(digest) or self._keys.caller(digest) or self._keys.caller_with_token(sent)
            if caller is not None:
                return caller
        is_browser = self._made is not None and self._made.is_in_cookie(scope, headers)
        return MADE if is_browser else None

    def login(self, scope: Scope) -> Response | None:
        """The answer to the link with the made key in it; None to everything else."""
        return None if self._made is None else self._made.login(scope)


def key_in(headers: Headers) -> bytes:
    """The key or token that a request carries, right or wrong; empty if there is none."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    return bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
