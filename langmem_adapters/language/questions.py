"""What a message asks, apart from what else it says: people greet, thank, and tell why they ask."""

from __future__ import annotations

import re

from langmem_adapters.language.lists import word_set

__all__ = ["asked_part", "split_framing"]

# Words with which one greets, thanks and says that one asks, in English, German, French, Spanish, Italian, Portuguese
# and Dutch.
_FRAMING_PATTERN = re.compile(
    r"\b(?:hello|hey|hi|ok|okay|please|thx|thanks(?: a lot| so much)?|thank you(?: (?:so|very) much)?)\b"
    r"|\b(?:can|could|will|would) you (?:please )?(?:remind|tell) me\b|\bdo you (?:still )?(?:know|recall|remember)\b"
    r"|(?:^|[.!?:,\n]) *(?:please )?(?:remind|tell) me\b|\blet me know\b"
    r"|\bi (?:am wondering|was wondering|wonder|want to know|would like to know)\b|\bi['\u2019]d like to know\b"
    r"|\b(?:hallo|bitte|danke|weißt du(?: noch)?|sag mir|(?:kannst|könntest) du mir (?:bitte )?sagen)\b"
    r"|\b(?:bonjour|salut|merci|s['\u2019]il (?:te|vous) plaît|dis-moi|tu te souviens)\b"
    r"|\b(?:peux|pourrais)-tu me (?:dire|rappeler)\b"
    r"|\b(?:hola|gracias|por favor|dime|(?:puedes|podrías) (?:decirme|recordarme))\b"
    r"|\b(?:ciao|grazie|per favore|dimmi|(?:puoi|potresti) (?:dirmi|ricordarmi))\b"
    r"|\b(?:olá|obrigad[ao]|diga-me|me diga|pode me dizer)\b"
    r"|\b(?:hoi|bedankt|alsjeblieft|alstublieft|weet je(?: nog)?|(?:kun|kan) je me (?:vertellen|zeggen))\b",
    re.IGNORECASE,
)
_REFERRING_WORDS = word_set("he him it she that them then there these they this those")  # to what was said before
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_CLOSING_CHARS = " \n\t\"'\u2019\u201d\u00bb)]*_!"  # that may follow a question mark
_SENTENCE_END_PATTERN = re.compile(
    r"(?<=[!?\u061f])(?=\s)|(?<=[\n\u3002\uff01\uff1f])"  # the marks of Chinese need no space
    r"|(?<=\w{3}\.)(?<!\b[A-Z][a-z]{2}\.)(?<!\b[A-Z][a-z]{3}\.)(?=\s)"  # but not after "Dr." or "Prof."
)
_WORD_PATTERN = re.compile(r"\w+")


def asked_part(text: str) -> str:
    """The questions in a text that also has other sentences; the text itself, if they refer to these, or are all.

    >>> asked_part("I had coffee with Ben yesterday. Where is my bike? Thanks!").strip()
    'Where is my bike?'
    >>> asked_part("Ben sold his bike. Why did he do that?")
    'Ben sold his bike. Why did he do that?'
    """
    sentences = [sentence for sentence in _SENTENCE_END_PATTERN.split(text) if sentence.strip()]
    questions = [sentence for sentence in sentences if sentence.rstrip(_CLOSING_CHARS).endswith(_QUESTION_MARKS)]
    if not questions or len(questions) == len(sentences):
        return text
    asked = " ".join(questions)
    return text if _REFERRING_WORDS.intersection(_WORD_PATTERN.findall(asked.lower())) else asked


def split_framing(text: str) -> tuple[str, str]:
    """A text without the words with which one greets, thanks and says that one asks, and these words.

    >>> split_framing("Could you tell me what Ben told me? Thanks!")
    ('  what Ben told me?  !', 'Could you tell me Thanks')
    """
    framing = " ".join(_FRAMING_PATTERN.findall(text))
    return _FRAMING_PATTERN.sub(" ", text) if framing else text, framing
