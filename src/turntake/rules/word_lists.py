"""The flush, hold and stop words that turntake has for some languages. Nobody has them unless their rules name them.

What stands here is said for nothing else: a flush or hold word counts wherever it stands in a message, so "done" and
"hold on" (there is a hold on my account) are left out. A stop word is all that a message says, and still "cancel" is
left out: whoever writes "my order 12" and then "cancel" wants both to be read.
"""

from collections.abc import Mapping
from typing import Literal

WordKind = Literal["flush", "hold", "stop"]
Lists = Mapping[WordKind, tuple[str, ...]]

_EN: Lists = {
    "flush": ("that's all", "that is all", "that's everything", "that is everything", "that will be all"),
    "hold": (
        *("one moment", "one sec", "1 sec", "one second please", "one minute please", "a moment please"),
        *("just a moment", "just a second", "just a sec", "just a minute", "wait a moment", "wait a second"),
        *("wait a sec", "wait a minute", "give me a moment", "give me a second", "give me a sec", "give me a minute"),
        *("hold on a moment", "hold on a second", "hold on a sec", "hold on please", "please hold on"),
        *("bear with me", "be right back", "brb"),
    ),
    "stop": (
        *("stop", "stop it", "stop that", "stop now", "stop please", "please stop"),
        *("never mind", "nevermind", "forget it", "forget that"),
    ),
}
_DE: Lists = {
    "flush": ("das ist alles", "das war alles", "das wäre alles", "das war's", "das wär's"),
    "hold": (
        *("einen moment", "kleinen moment", "moment bitte", "moment mal", "augenblick bitte", "einen augenblick"),
        *("eine sekunde bitte", "sekunde bitte", "eine minute bitte", "warte kurz", "warten sie kurz", "bitte warten"),
        *("bin gleich zurück", "bin gleich wieder da", "gleich wieder da"),
    ),
    "stop": (
        *("stop", "stopp", "halt", "halt stopp", "stopp bitte", "bitte stopp", "hör auf", "hören sie auf"),
        *("vergiss es", "vergessen sie es", "schon gut", "hat sich erledigt"),
    ),
}
_ES: Lists = {
    "flush": ("eso es todo", "eso sería todo", "eso seria todo"),
    "hold": (
        *("un momento", "un momentito", "un segundito", "un segundo por favor", "un minuto por favor"),
        *("dame un segundo", "deme un segundo", "dame un minuto", "deme un minuto", "ahora vuelvo", "ya vuelvo"),
    ),
    "stop": (
        *("stop", "pare", "para ya", "alto", "basta", "detente", "deténgase", "detengase"),
        *("olvídalo", "olvidalo", "olvídelo", "olvidelo", "déjalo", "dejalo"),
    ),
}
_FR: Lists = {
    "flush": ("c'est tout", "ce sera tout", "voilà tout", "voila tout"),
    "hold": (
        *("un instant", "un petit instant", "un moment svp", "un moment s'il vous plaît", "un moment s'il te plaît"),
        *("une petite seconde", "une seconde svp", "une minute svp", "ne quittez pas", "patientez", "je reviens vite"),
    ),
    "stop": (
        *("stop", "arrête", "arrete", "arrêtez", "arretez", "ça suffit", "ca suffit"),
        *("laisse tomber", "laissez tomber", "oublie", "oubliez", "oublie ça", "oubliez ça"),
    ),
}
_IT: Lists = {
    "flush": ("questo è tutto", "è tutto"),
    "hold": ("un momento", "un momentino", "un attimo", "un attimino", "un secondo per favore", "torno subito"),
    "stop": (
        *("stop", "fermati", "si fermi", "basta", "smettila", "la smetta"),
        *("lascia stare", "lasci stare", "lascia perdere", "lasci perdere"),
    ),
}
_NL: Lists = {
    "flush": ("dat is alles", "dat was alles", "dat was het"),
    "hold": (
        *("een moment", "een momentje", "momentje", "een ogenblik", "een ogenblikje", "ogenblikje"),
        *("even geduld", "wacht even", "ben zo terug"),
    ),
    "stop": ("stop", "stop maar", "hou op", "houd op", "laat maar", "vergeet het", "vergeet het maar"),
}
_PT: Lists = {
    "flush": ("isso é tudo", "era só isso", "é só isso"),
    "hold": (
        *("um momento", "um momentinho", "um instante", "um minutinho", "só um segundo", "só um minuto"),
        *("espera um pouco", "espere um pouco", "já volto"),
    ),
    "stop": (
        *("stop", "pare", "pare com isso", "para com isso", "chega"),
        *("deixa pra lá", "deixe pra lá", "deixa para lá", "esquece", "esqueça"),
    ),
}

LISTS: Mapping[str, Lists] = {
    "de": _DE,
    "en": _EN,
    "es": _ES,
    "fr": _FR,
    "it": _IT,
    "nl": _NL,
    "pt": _PT,
}
"""By the two letters of a language (ISO 639-1)."""
