"""What a text says beside its words: who is named, which date is meant, whether it asks, states or counts.

Question marks, digits, names and ISO dates are read in any language, "when", "how many", "who" and "where" in a few;
the rest are English words, and a text that has none of them has none of these cues.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from langmem_adapters.language.dates import DAYS, MONTHS
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.language.lists import word_set
from langmem_adapters.language.query_dates import NamedDate, dated_part, named_date
from langmem_adapters.language.questions import asked_part

QUESTION, ASKS, FIRST_PERSON, TIME, NUMBER, NAMES, ANSWER = 1, 2, 4, 8, 16, 32, 64
"""Marks of a text: it ends with a question; asks one; speaks of its speaker, a time, a number; names something.

The last one is set if a model said it.
"""

_FIRST_PERSON_WORDS = word_set("i my mine me we our us i'm i've i'd i'll we're we've myself")
_TIME_WORDS = word_set("""yesterday today tonight tomorrow ago last next week weekend month year day morning evening
    night afternoon recently since summer winter spring fall autumn birthday anniversary
    just""") | {*MONTHS, *DAYS} - {"may"}
_NUMBER_WORDS = word_set("""one two three four five six seven eight nine ten eleven twelve twenty thirty hundred
    thousand couple few several once twice""")
_WORDS_AFTER_HOW = word_set("many much long old often")
_WHEN_WORDS = word_set("when wann quand cuándo quando wanneer когда")
_HOW_MANY_WORDS = word_set("""wieviel viele combien cuánto cuánta cuántos cuántas quanto quanta quanti quante quantos
    quantas hoeveel""")
_WHO_WORDS = word_set("who where wer wen wem wo wohin où quién quiénes dónde chi quem onde waar кто где")
_ANY_FIRST_PERSON_WORDS = _FIRST_PERSON_WORDS.union(
    """ich mir mich mein meine meinen meinem meiner je moi mon ma mes yo mi mis io mio mia eu meu minha ik
    mijn""".split()
)
_YOU_SAID_PATTERN = re.compile(
    r"\b(?:did|have|had) you\b|\byou(?:'d| had| have)? (?:advise|came up|explain|gave|list|mention|propos|recommend|"
    r"said|say|suggest|told|tell|wrote)|"
    r"\byour (?:\w+ )?(?:advice|answer|idea|list|plan|recipe|recommendation|suggestion|tip)|"
    r"\b(?:hast|hattest) du\b|\bdu (?:mir )?(?:\w+ )?(?:empfohlen|erklärt|gesagt|vorgeschlagen)|\bdeine? |"
    r"\b(?:as-tu|tu m'as|tu avais)\b|\bme (?:dijiste|recomendaste|sugeriste)\b|\bmi hai\b"
)
_QUESTION_MARKS = "?\uff1f\u061f"
_WORD_PATTERN = re.compile(r"[\w']+")
_QUESTION_END_PATTERN = re.compile(rf"[{_QUESTION_MARKS}]\W*(?:\[[^\]]*\]\s*)?\Z")
_CAPITALISED_PATTERN = re.compile(r"(?<=[^.!?\s]\s)[A-Z][a-z]+")
_MIN_NAME_CHARS = 3  # of a short form, as Mel for Melanie
_QUESTION_END_CHARS = 500  # in which a question is looked for: with many marks, each would be tried to the end


def text_marks(text: str) -> int:
    """The marks of a text, as bits."""
    words = set(_WORD_PATTERN.findall(text.lower().replace("\u2019", "'")))
    marks = QUESTION if _QUESTION_END_PATTERN.search(text[-_QUESTION_END_CHARS:]) else 0
    marks |= ASKS if any(question_mark in text for question_mark in _QUESTION_MARKS) else 0
    marks |= FIRST_PERSON if words & _FIRST_PERSON_WORDS else 0
    marks |= TIME if words & _TIME_WORDS else 0
    marks |= NUMBER if words & _NUMBER_WORDS or any(word[0].isdecimal() for word in words) else 0
    return marks | (NAMES if _CAPITALISED_PATTERN.search(text) else 0)


class QueryFeatures(NamedTuple):
    """What a query asks for: a time, a number, a person or place; and the date that it names."""

    when: bool = False
    how_many: bool = False
    who: bool = False
    date: NamedDate = NamedDate()
    speaker_role: str = ""
    """The role in which it was said, if the query tells: "you told me" means the model, "I do" the user."""


def query_features(query: str) -> QueryFeatures:
    """Read a query: in its questions, what it asks for; anywhere, the date."""
    asked = asked_part(query)
    text = asked.lower().replace("\u2019", "'")
    words = set(_WORD_PATTERN.findall(text))
    role = "user" if words & _ANY_FIRST_PERSON_WORDS else ""
    if _YOU_SAID_PATTERN.search(text):
        role = "assistant"
    when = bool(words & _WHEN_WORDS) or bool(words & {"date", "month", "year"} and words & {"what", "which"})
    how_many = ("how" in words and bool(words & _WORDS_AFTER_HOW)) or bool(words & _HOW_MANY_WORDS)
    return QueryFeatures(when, how_many, bool(words & _WHO_WORDS), named_date(dated_part(query)), role)


def named_speakers(query: str, speakers: Collection[str]) -> tuple[frozenset[str], str]:
    """The speakers whom a query names, and the query without their names.

    A word names a speaker if it is a word of the name, begins it (Mel, Melanie), or has an s more, as in German
    (Lenas), is written with a capital and is no other word of English; a name in a script without capitals or spaces
    may stand anywhere.
    """
    named = {speaker for speaker in speakers if _is_caseless(speaker) and speaker in query}
    name_words = {*named}
    speakers_by_word: dict[str, set[str]] = {}
    for speaker in speakers:
        for part in _WORD_PATTERN.findall(speaker.casefold()):
            speakers_by_word.setdefault(part, set()).add(speaker)
    query = query.replace("\u2019", "'")
    for word in set(_WORD_PATTERN.findall(query)):
        matches = set().union(*[speakers_by_word.get(part, ()) for part in _possible_parts(word, speakers_by_word)])
        if matches:
            named |= matches
            name_words.add(word)
    for word in sorted(name_words, key=len, reverse=True):
        pattern = re.escape(word) if _is_caseless(word) else rf"(?<!\w){re.escape(word)}(?!\w)"
        query = re.sub(pattern, " ", query)
    return frozenset(named), query


def _possible_parts(word: str, name_parts: Collection[str]) -> set[str]:
    """The words of names for which a word of a query may stand."""
    folded, is_capitalised = word.removesuffix("'s").casefold(), word[0].isupper()
    if folded in STOP_WORDS:
        return {folded} if is_capitalised else set()
    if not is_capitalised or len(folded) < _MIN_NAME_CHARS:
        return {folded}
    return {part for part in name_parts if part.startswith(folded)} or {folded.removesuffix("s")}


def _is_caseless(name: str) -> bool:
    """Whether a name is of a script without capitals, and so long that it is hardly a part of another word."""
    return len(name) > 1 and not name.isascii() and name.lower() == name.upper()
