"""The token of an interaction, sealed for its way through the store. Pure.

Whoever has the token speaks as the bot for 15 minutes. It comes in with a command, and must be kept until the answer
leaves, so it lies in the store with the message, is shown by the API and handed to the agent. Sealed with a key made of
the bot's own token, it is of use only to whoever has that already.
"""

import base64
import binascii
import hashlib

from turntake.plugins import extra

with extra("discord"):
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox


def seal(token: str, bot_token: str) -> str:
    """The same for the same token, so that a webhook that comes again reads the same. "" without a bot token."""
    if not token or not bot_token:
        return ""
    key, plain = _key(bot_token), token.encode("utf-8", "replace")
    nonce = hashlib.blake2b(plain, digest_size=SecretBox.NONCE_SIZE, key=key).digest()
    return base64.urlsafe_b64encode(SecretBox(key).encrypt(plain, nonce)).decode()


def unseal(sealed: str, bot_token: str) -> str:
    """The token; "" if it was sealed for another bot, or is none."""
    try:
        return SecretBox(_key(bot_token)).decrypt(base64.urlsafe_b64decode(sealed.encode())).decode()
    except (CryptoError, binascii.Error, ValueError, TypeError):
        return ""


def _key(bot_token: str) -> bytes:
    return hashlib.blake2b(
        bot_token.strip().encode(), digest_size=SecretBox.KEY_SIZE, person=b"turntake-token"
    ).digest()
