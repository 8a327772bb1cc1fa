"""What a text says beside its words: who is named, which date is meant, whether it asks, states or counts.

Question marks, digits, names and ISO dates are read in any language, "when", "how many", "who" and "where" in a few;
the rest are English words, and a text that has none of them has none of these cues.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from langmem_adapters.language.analysis import STOP_WORDS
from langmem_adapters.language.dates import DAYS, MONTHS
from langmem_adapters.language.lists import listed
from langmem_adapters.language.query_dates import NamedDate, named_date

__all__ = [
    "ANSWER",
    "ASKS",
    "FIRST_PERSON",
    "NAMES",
    "NUMBER",
    "QUESTION",
    "TIME",
    "QueryFeatures",
    "asked",
    "marks",
    "named",
]

QUESTION, ASKS, FIRST_PERSON, TIME, NUMBER, NAMES, ANSWER = 1, 2, 4, 8, 16, 32, 64
"""Marks of a text: it ends with a question; asks one; speaks of its speaker, a time, a number; names something.

The last one is set if a model said it.
"""

_FIRST = listed("i my mine me we our us i'm i've i'd i'll we're we've myself")
_TIMES = listed("""yesterday today tonight tomorrow ago last next week weekend month year day morning evening night
    afternoon recently since summer winter spring fall autumn birthday anniversary just""") | {*MONTHS, *DAYS} - {"may"}
_NUMBERS = listed("""one two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand
    couple few several once twice""")
_COUNTED = listed("many much long old often")  # what follows "how"
_WHEN = listed("when wann quand cuándo quando wanneer когда")
_HOW_MANY = listed("""wieviel viele combien cuánto cuánta cuántos cuántas quanto quanta quanti quante quantos quantas
    hoeveel""")
_WHO = listed("who where wer wen wem wo wohin où quién quiénes dónde chi quem onde waar кто где")
_ME = _FIRST.union(
    """ich mir mich mein meine meinen meinem meiner je moi mon ma mes yo mi mis io mio mia eu meu minha ik
    mijn""".split()
)
_YOU_SAID = re.compile(
    r"\b(?:did|have|had) you\b|\byou(?:'d| had| have)? (?:advise|came up|explain|gave|list|mention|propos|recommend|"
    r"said|say|suggest|told|tell|wrote)|"
    r"\byour (?:\w+ )?(?:advice|answer|idea|list|plan|recipe|recommendation|suggestion|tip)|"
    r"\b(?:hast|hattest) du\b|\bdu (?:mir )?(?:\w+ )?(?:empfohlen|erklärt|gesagt|vorgeschlagen)|\bdeine? |"
    r"\b(?:as-tu|tu m'as|tu avais)\b|\bme (?:dijiste|recomendaste|sugeriste)\b|\bmi hai\b"
)
_ASKING = "?\uff1f\u061f"
_WORD = re.compile(r"[\w']+")
_ENDS_WITH_QUESTION = re.compile(rf"[{_ASKING}]\W*(?:\[[^\]]*\]\s*)?\Z")
_CAPITALISED = re.compile(r"(?<=[^.!?\s]\s)[A-Z][a-z]+")
_SHORTEST_NAME = 3  # letters of a short form, as Mel for Melanie
_END = 500  # characters at the end in which a question is looked for: with many marks, each would be tried to the end


def marks(text: str) -> int:
    """The marks of a text, as bits."""
    words = set(_WORD.findall(text.lower().replace("\u2019", "'")))
    found = QUESTION if _ENDS_WITH_QUESTION.search(text[-_END:]) else 0
    found |= ASKS if any(mark in text for mark in _ASKING) else 0
    found |= FIRST_PERSON if words & _FIRST else 0
    found |= TIME if words & _TIMES else 0
    found |= NUMBER if words & _NUMBERS or any(word[0].isdecimal() for word in words) else 0
    return found | (NAMES if _CAPITALISED.search(text) else 0)


class QueryFeatures(NamedTuple):
    """What a query asks for: a time, a number, a person or place; and the date that it names."""

    when: bool = False
    how_many: bool = False
    who: bool = False
    date: NamedDate = NamedDate()
    teller: str = ""
    """The role in which it was said, if the query tells: "you told me" means the model, "I do" the user."""


def asked(query: str) -> QueryFeatures:
    """Read a query."""
    plain = query.lower().replace("\u2019", "'")
    has = set(_WORD.findall(plain))
    teller = "assistant" if _YOU_SAID.search(plain) else "user" if has & _ME else ""
    when = bool(has & _WHEN) or bool(has & {"date", "month", "year"} and has & {"what", "which"})
    how_many = ("how" in has and bool(has & _COUNTED)) or bool(has & _HOW_MANY)
    return QueryFeatures(when, how_many, bool(has & _WHO), named_date(query), teller)


def named(query: str, speakers: Collection[str]) -> tuple[frozenset[str], str]:
    """The speakers whom a query names, and the query without their names.

    A word names a speaker if it is a word of the name, begins it (Mel, Melanie), or has an s more, as in German
    (Lenas), is written with a capital and is no other word of English; a name in a script without capitals or spaces
    may stand anywhere.
    """
    found = {speaker for speaker in speakers if _stands_anywhere(speaker) and speaker in query}
    gone = {*found}
    who: dict[str, set[str]] = {}  # by the words of their names
    for speaker in speakers:
        for part in _WORD.findall(speaker.casefold()):
            who.setdefault(part, set()).add(speaker)
    query = query.replace("\u2019", "'")
    for word in set(_WORD.findall(query)):
        folded, capital = word.removesuffix("'s").casefold(), word[0].isupper()
        parts = {folded} if capital or folded not in STOP_WORDS else set()
        if capital and folded not in STOP_WORDS and len(folded) >= _SHORTEST_NAME:
            parts = {part for part in who if part.startswith(folded)} or {folded.removesuffix("s")}
        mine = set().union(*[who.get(part, ()) for part in parts])
        if mine:
            found |= mine
            gone.add(word)
    for word in sorted(gone, key=len, reverse=True):
        pattern = re.escape(word) if _stands_anywhere(word) else rf"(?<!\w){re.escape(word)}(?!\w)"
        query = re.sub(pattern, " ", query)
    return frozenset(found), query


def _stands_anywhere(name: str) -> bool:
    """Whether a name is of a script without capitals, and so long that it is hardly a part of another word."""
    return len(name) > 1 and not name.isascii() and name.lower() == name.upper()
