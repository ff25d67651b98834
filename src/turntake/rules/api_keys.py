"""API keys: who calls, what they may do, and whose conversations they see. Pure: random bytes and times are arguments.

A key is shown once, when it is made, and kept as a hash. It is 256 random bits, so that nobody finds it by trying, and
a plain hash is enough: a slow one, as passwords need, would cost every request what it costs a thief.

A caller's tenants are those whose conversations it sees, and can write to; None stands for every tenant.
"""

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from turntake.rules.key import ConversationKey

KeyScope = Literal[
    "messages:write",
    "conversations:read",
    "orders",
    "turns:complete",
    "letters",
    "rules",
    "events",
    "admin",
    "impersonate",
]
SCOPES: Mapping[KeyScope, str] = {
    "messages:write": "send messages and activity",
    "conversations:read": "list and show conversations and turns",
    "orders": "flush, hold and clear what waits",
    "turns:complete": "complete, fail and extend turns",
    "letters": "list, show, retry and discard dead letters",
    "rules": "show, set and explain rules",
    "events": "watch what happens, with the replies",
    "admin": "make, list and revoke API keys, none stronger than itself",
    "impersonate": "with messages:write, write as a person on a platform",
}
EVERY_SCOPE: frozenset[str] = frozenset(get_args(KeyScope))

PREFIX = "ttk_"
"""How every key begins, so that people and programs that look for leaked secrets know what it is."""
KEY_BYTES = 32
MOST_KEYS = 1_000  # a document of some 300 KB; each process reads it whole whenever a key is made or revoked
MOST_KEYS_OF_TENANT = 100  # that a tenant makes by itself, so that some are left for everybody else
MOST_REVOKED = 100  # enough to see what was revoked of late
NAME_CHARACTERS = 64
ID_DIGITS = 12


class ApiKey(msgspec.Struct, frozen=True):
    """One key as it is kept. `hash` is the SHA-256 of what its holder sends, in hex; `id` names it to people."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    tenants: tuple[str, ...] | None = None
    created_at: int = 0
    revoked_at: int | None = None


class Caller(msgspec.Struct, frozen=True):
    """Who makes a request. Of one with a completion token, `turn_id` is the only turn that it may end."""

    name: str
    scopes: frozenset[str] = EVERY_SCOPE
    tenants: frozenset[str] | None = None
    key_id: str = ""
    turn_id: str = ""

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes

    def sees(self, key: ConversationKey) -> bool:
        """Whether this conversation exists, as far as the caller is concerned."""
        return self.tenants is None or key.tenant in self.tenants

    def shares_tenant_with(self, other: "Caller") -> bool:
        """Whether both are for some tenants, and for one of them both are."""
        return self.tenants is not None and other.tenants is not None and not self.tenants.isdisjoint(other.tenants)

    def tenant_for(self, named: str) -> str:
        """The tenant of what it writes, where the body names `named`. Raises ValueError.

        The tenant of a key with one counts, whatever the body says. One with several must be told which.
        """
        if self.tenants is None or named in self.tenants:
            return named
        if len(self.tenants) == 1:
            (tenant,) = self.tenants
            return tenant
        raise ValueError(f"This API key is for the tenants {listed(self.tenants)}: name one of them in `tenant`.")

    def lacks(self, key: ApiKey) -> str:
        """What it would have to be allowed to make this key, in words; empty if it may: none makes a stronger one."""
        if missing := set(key.scopes) - self.scopes:
            return f"the scope {listed(missing)}"
        if self.tenants is not None and not (key.tenants is not None and self.tenants.issuperset(key.tenants)):
            return "other tenants than its own: name some of those in `tenants`"
        return ""

    def sees_key(self, key: ApiKey) -> bool:
        """Whether it may know of this key: one for some tenants knows keys that are for no others."""
        return self.tenants is None or (key.tenants is not None and self.tenants.issuperset(key.tenants))


ANYBODY = Caller("anybody")
"""Whoever is served without a key: then nobody has one, and only programs on this machine get this far."""


class KeyBook(msgspec.Struct, frozen=True):
    """All API keys at one moment, the latest last, and the secret by which this installation knows what it gave out."""

    secret: bytes = b""
    keys: tuple[ApiKey, ...] = ()

    def with_key(self, key: ApiKey, maker: Caller = ANYBODY) -> "KeyBook":
        """Raises ValueError if there are too many, in all or of the tenants of whoever makes it."""
        in_force = [each for each in self.keys if each.revoked_at is None]
        own = [] if maker.tenants is None else [each for each in in_force if maker.sees_key(each)]
        for keys, most in ((in_force, MOST_KEYS), (own, MOST_KEYS_OF_TENANT)):
            if len(keys) >= most:
                raise ValueError(f"There are {most} API keys, which is the most; revoke some first.")
        return replace(self, keys=(*self.keys, key))

    def revoke(self, key_id: str, now: int) -> "KeyBook":
        """Without those revoked longest ago, if there are many. A key revoked twice keeps its first time."""
        revoked = [replace(key, revoked_at=now) if _is_live(key, key_id) else key for key in self.keys]
        over = sum(key.revoked_at is not None for key in revoked) - MOST_REVOKED
        by_age = sorted((key for key in revoked if key.revoked_at is not None), key=lambda key: key.revoked_at or 0)
        dropped = {key.id for key in by_age[: max(0, over)]}
        return replace(self, keys=tuple(key for key in revoked if key.id not in dropped))

    def find(self, key_id: str) -> ApiKey | None:
        return next((key for key in self.keys if key.id == key_id), None)

    def callers(self) -> dict[bytes, Caller]:
        """Those in force, by the hash of what they send. A scope that only a later release knows does no harm."""
        return {
            bytes.fromhex(key.hash): Caller(
                key.name, frozenset(key.scopes), None if key.tenants is None else frozenset(key.tenants), key.id
            )
            for key in self.keys
            if key.revoked_at is None
        }


def new_key(
    name: str, scopes: Iterable[str], tenants: Iterable[str] | None, random: bytes, now: int
) -> tuple[ApiKey, str]:
    """A key as it is kept, and what its holder sends. Raises ValueError and says what is wrong."""
    written = PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
    digest = hash_of(written.encode())
    kept = ApiKey(digest.hex()[:ID_DIGITS], _name(name), digest.hex(), _scopes(scopes), _tenants(tenants), now)
    return kept, written


def hash_of(written: bytes) -> bytes:
    """By what a key is kept and found."""
    return hashlib.sha256(written).digest()


def listed(names: Collection[str]) -> str:
    """`a`, `b` and so on, for a sentence."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def _is_live(key: ApiKey, key_id: str) -> bool:
    return key.id == key_id and key.revoked_at is None


def _name(name: str) -> str:
    clean = name.strip()
    if not clean or len(clean) > NAME_CHARACTERS or not clean.isprintable():
        raise ValueError(f"`name` says whose key it is, in 1 to {NAME_CHARACTERS} printable characters.")
    return clean


def _scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    chosen = set(scopes)
    if unknown := chosen - EVERY_SCOPE:
        raise ValueError(f"There is no scope {listed(unknown)}; there are: {listed(EVERY_SCOPE)}.")
    if not chosen:
        raise ValueError(f"`scopes` says what the key is good for; name at least one of {listed(EVERY_SCOPE)}.")
    return tuple(scope for scope in SCOPES if scope in chosen)


def _tenants(tenants: Iterable[str] | None) -> tuple[str, ...] | None:
    if tenants is None:
        return None
    chosen = {ConversationKey.of("any", tenant=tenant).tenant if tenant else "" for tenant in tenants}
    if not chosen or "" in chosen:
        raise ValueError("`tenants` names those that the key is for; leave it out for all of them.")
    return tuple(sorted(chosen))
