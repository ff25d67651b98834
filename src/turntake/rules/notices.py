"""What a person is told when a message of theirs is not answered, in their language. Pure."""

import re

from turntake.rules.message import Message

LANGUAGE = "language"
"""The name under which a message's metadata has the sender's language, as in `de` or `pt-BR`."""
_MARK = re.compile(r"@([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)(?:\s+|$)")


def notice_for(texts: str, message: Message) -> str:
    """The text for the sender of this message; the one without a language if there is none for theirs.

    Each language begins with a line such as `@de Einen Moment bitte`; what stands before the first is for everybody.
    """
    by_language = _by_language(texts)
    language = str(message.metadata.get(LANGUAGE, "")).replace("_", "-").lower()
    while language:
        if language in by_language:
            return by_language[language]
        language = language.rpartition("-")[0]
    return by_language.get("", "")


def _by_language(texts: str) -> dict[str, str]:
    by_language: dict[str, list[str]] = {}
    language = ""
    for line in texts.strip().splitlines():
        if mark := _MARK.match(line):
            language, line = mark[1].lower(), line[mark.end() :]
        by_language.setdefault(language, []).append(line)
    return {language: "\n".join(lines).strip() for language, lines in by_language.items()}
