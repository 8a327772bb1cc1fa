"""The guard of tense and aspect: is, was, will be, is being done, would have been."""

from __future__ import annotations

import re

from langmem_adapters.experience.verifier.alignment import Alignment, differ, unmatched
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import is_past
from langmem_adapters.language.lists import listed, named

__all__ = ["tense"]

_ASKING = """(?:(?:ask|check|confirm|detect|discover|doubt|find|guess|learn|recall|remember|say|see|show|tell|test|
    understand|wonder)(?:s|ed|ing)?|know(?:s|ing)?|knew|(?:decid|determin|inquir|prov)(?:e|es|ed|ing)|
    (?:clarif|identif|verif)(?:y|ies|ied|ying)|found|idea|said|saw|sure|told|understood|unsure|
    her|him|me|out|them|us)"""  # whether
_SUPPOSED = re.compile(rf"(^|\b(?!{''.join(_ASKING.split())}\b)\w+\W+)if\b[^,.;:?!]*")
_HAVING = frozenset(("has", "have", "had"))
_NEAR = 5  # words: "have all of them decided"
_TIMES = named("is are am do does will, was were did")
_BEING = listed("is are am was were be been being")
_MODALS = listed("can could may might must should will would")
_AUXILIARIES = _BEING | _HAVING | _MODALS | {"did", "do", "does", "shall"}


def tense(left: Reading, right: Reading, alignment: Alignment) -> str:
    """With all else the same, present, past and future must not be exchanged.

    The tense of a condition in both does not count: "if I lost it" is "if I lose it".
    """
    if any(word.text != "will" for side in unmatched(left, right, alignment) for word in side):
        return ""
    one_told, other_told = _aspects_of(left), _aspects_of(right)
    if found := _aspects(one_told, other_told) ^ _aspects(other_told, one_told):
        return differ("tense", found, ())
    supposing = "if" in left.vocabulary & right.vocabulary
    lefts, rights = (_stated(left), _stated(right)) if supposing else (left.words, right.words)
    one, other = _times(lefts), _times(rights)
    for a, b, _ in alignment.pairs:
        verb, another = left.content[a].text, right.content[b].text
        if verb != another and is_past(verb) != is_past(another):
            for times, words, word in ((one, lefts, verb), (other, rights, another)):
                if word in words and _AUXILIARIES.isdisjoint(words) and ["", *words][words.index(word)] != "to":
                    times.add("was" if is_past(word) else "is")
    if {*one, *other} != {"is", "was"} or one & other:
        return ""
    return differ("tense", one, other)


def _aspects(told: set[tuple[str, str]], other: set[tuple[str, str]]) -> set[str]:
    """Verbs with "would have", and verbs with an aspect (doing, being, done) if the other text has one for them."""
    there = {stem for _, stem in other}
    return {f"{aspect} {stem}" for aspect, stem in told if aspect == "would have" or stem in there}


def _aspects_of(reading: Reading) -> set[tuple[str, str]]:
    found = set()
    for place, (word, stem) in enumerate(zip(reading.words, reading.stems, strict=True)):
        doing = word.endswith("ing")
        if doing or is_past(word):
            before = reading.words[max(0, place - _NEAR) : place]
            auxiliary = next((one for one in reversed(before) if one in _BEING or one in _HAVING), "")
            if auxiliary == "have" and not doing and not _MODALS.isdisjoint(before):
                found.add(("would have", stem))
            elif auxiliary:
                aspect = "being" if "being" in before else "doing" if doing and auxiliary in _BEING else "done"
                found.add((aspect, stem))
    return found


def _stated(reading: Reading) -> list[str]:
    """The words outside conditional clauses; "tell me if" begins none, as it means "whether"."""
    return re.findall(r"\w+", _SUPPOSED.sub(r"\1", reading.text))


def _times(words: list[str]) -> set[str]:
    """The tenses by auxiliaries; "has decided" is past, "has been closed" present."""
    times = {_TIMES[word] for word in words if word in _TIMES}
    if times:
        return times
    for place, word in enumerate(words):
        after = words[place + 1 : place + _NEAR]
        if word in _HAVING and "been" not in after and any(map(is_past, after)):
            return {"was"}
    return times
