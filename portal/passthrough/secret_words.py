"""Whether a text asks for what nobody should type into a form of a stranger, however the text is dressed up."""

import re
import unicodedata
from typing import Final

_GAP: Final = r"[\W_]{0,3}"

_SECRET: Final = re.compile(
    rf"p{_GAP}a{_GAP}s{_GAP}s{_GAP}(?:w{_GAP}[o0]{_GAP}r{_GAP}d|wd|phrase|code)|\bpwd\b|secret(?!ar)"
    rf"|(?:api|access|private|secret|ssh){_GAP}key|credential"
    rf"|token(?!s|iz)|(?:access|api|auth|bearer|refresh){_GAP}tokens|\bpin\b|\bcvv\b|\bcvc\b|\bssn\b"
    rf"|card{_GAP}number|(?:credit|debit){_GAP}card"
    rf"|\botp\b|\btotp\b|\b2fa\b|\bmfa\b|two{_GAP}factor|one{_GAP}time{_GAP}(?:code|pass)"
    rf"|(?:seed|recovery|backup){_GAP}(?:phrase|words|key|codes?\b)|\bmnemonic"
    rf"|(?:verification|security|log{_GAP}in|sign{_GAP}in|sms|authenticat(?:ion|or)|digit){_GAP}code",
)

# "(do not give us your phone number, PIN, or other sensitive info)". Nothing but such a list may be in it: "do not
# enter anything but your PIN" and "do not forget your PIN" ask for one.
_OF_A_LIST: Final = (
    r"your|any|an?|the|or|and|other|such|as|like|phone|numbers?|codes?|names?|e-?mail|address(?:es)?"
    r"|sensitive|personal|private|confidential|info|information|data|details?|tokens|here"
)
_PLACE: Final = "in (?:this|the|your) (?:field|form|answer|reply)"
_UNWANTED: Final = re.compile(
    r"\b(?:please )?(?:do not|don['\u2019]t|never)"
    r" (?:(?:give|tell|send|show) us|give|enter|type|include|provide|write|put|paste)"
    rf"(?:[ ,/]++(?>{_SECRET.pattern}|{_OF_A_LIST})s?\b)++(?: {_PLACE})?+(?= ?[.;!){{\"]| ?$)"
)

# It must be all that is said: "your account is closed if you do not enter your PIN" asks for one. So it begins a
# sentence or a text in JSON, or is in a bracket behind words that it cannot go on from.
_FAR: Final = 120
_LEADING: Final = (
    r"\b(?:if|in|unless|until|once|should|because|that|which|when|who\w*|one|those|you|they|we"
    r"|any\w*|every\w*|all|users?|people|and|or|to)\b"
)
_ON_ITS_OWN: Final = re.compile(
    rf"(?:\A|\}}\ |\":\ ?\"|(?<![.!?])[.!?]\ )(?:(?:(?!{_LEADING})[^.!?:;(){{\"])++\()?\Z", re.VERBOSE
)

# What looks like a Latin letter, and is of another script.
_LOOKALIKES: Final = str.maketrans(
    "асеорѕіјхукнтмвԁԛԝһӏɡıαερνικτυοχωη",
    "aceopsijxykhtmbdqwhlgiaepviktuoxwn",
)

_UNSEEN: Final = ("Cf", "Mn", "Me")

# They show as nothing, and are no marks.
_FILLERS: Final = frozenset("\u115f\u1160\u2800")


def asks_for_secret(text: str) -> bool:
    """Whether it names one, other than to say that it is not wanted."""
    plain = _plain(text)
    return _SECRET.search(_UNWANTED.sub(_unless_on_its_own, plain)) is not None


def _unless_on_its_own(found: re.Match[str]) -> str:
    start = found.start()
    return " " if _ON_ITS_OWN.search(found.string, max(0, start - _FAR), start) else found[0]


def _plain(text: str) -> str:
    """The text as it reads: without marks and invisible characters, in Latin letters where it looks like them."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    seen = (each for each in apart if unicodedata.category(each) not in _UNSEEN and each not in _FILLERS)
    return "".join(seen).translate(_LOOKALIKES)
