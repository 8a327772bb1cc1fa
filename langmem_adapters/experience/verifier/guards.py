"""Hard guards: differences that forbid serving one request's answer for another, however near the two may be.

A guard compares two readings and the alignment of their words. It returns why it refuses, or "" if it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from itertools import chain, groupby
from types import MappingProxyType

from langmem_adapters.experience.verifier.alignment import (
    FORM_SIMILARITIES,
    TYPO_SIMILARITY,
    Alignment,
    is_reworded,
    is_short,
    refusal,
    unmatched_words,
)
from langmem_adapters.experience.verifier.features import follows_preposition
from langmem_adapters.experience.verifier.forms import are_synonyms, is_optional, same_root
from langmem_adapters.experience.verifier.guards_function_words import (
    complements,
    courtesies,
    links,
    mentions,
    modality,
    persons,
)
from langmem_adapters.experience.verifier.guards_literals import code, numbers, quotations, snippets, symbols, units
from langmem_adapters.experience.verifier.guards_manner import degree, manner, plurals, prepositions
from langmem_adapters.experience.verifier.guards_replacements import details, words
from langmem_adapters.experience.verifier.guards_scope import scope
from langmem_adapters.experience.verifier.guards_verbs import tense, voice
from langmem_adapters.experience.verifier.questions import QUESTION_PARTS, QUESTION_WORDS
from langmem_adapters.experience.verifier.reading import Reading, Word, question_frame
from langmem_adapters.experience.verifier.swaps import exchanged_small_words, opposite_preposition, swapped_words
from langmem_adapters.experience.verifier.word_order import essential_words, exchanged_statements, rearranged_words
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    ENGLISH_MARKERS,
    FINITE_VERBS,
    NEGATIONS,
    OPPOSITES,
    STOP_WORDS,
    is_past,
)
from langmem_adapters.language.lists import word_set

Guard = Callable[[Reading, Reading, Alignment], str]


def language(left: Reading, right: Reading, _: Alignment) -> str:
    """Both must be in English, or neither."""
    return "" if left.english == right.english or left.text == right.text else "language differs"


def negation(left: Reading, right: Reading, _: Alignment) -> str:
    """One must not deny what the other says."""
    negations = [word for reading in (left, right) for word in reading.words if word in NEGATIONS]
    if len(negations) % 2 == 0:  # two cancel each other
        return ""
    return f"negation differs: {', '.join(sorted({*negations}))}"


def opposites(left: Reading, right: Reading, _: Alignment) -> str:
    """A word must not be replaced by its opposite: "increase" and "decrease", "export" and "import"."""
    left_words, right_words = (dict(zip(reading.stems, reading.words, strict=True)) for reading in (left, right))
    right_stems = right_words.keys() - left_words.keys()
    for stem in sorted(left_words.keys() - right_words.keys()):
        word = left_words[stem]
        opposite_stems = right_stems & OPPOSITES.get(stem, set())
        affixed = {other for other in right_stems if _differ_in_affix((stem, word), (other, right_words[other]))}
        opposite_stems |= {opposite for opposite in affixed if not are_synonyms(right_words[opposite], word)}
        if opposite_stems:
            return refusal("opposites", {word}, {right_words[min(opposite_stems)]})
    return ""


_MIN_AFFIXED_CHARS = 3
_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "anti", "mis", "de", "re")


def _differ_in_affix(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether stems or words differ in an affix: "locked" and "unlocking" by stem, "known" and "unknown" by word."""
    return any(second in _affix_opposites(first) for first, second in zip(one, other, strict=True))


@lru_cache(maxsize=1 << 14)
def _affix_opposites(word: str) -> frozenset[str]:
    """Possible opposites of a word or stem by prefix or suffix: "unhappy" for "happy", "useless" for "useful"."""
    prefixed = ((prefix + word, word.removeprefix(prefix)) for prefix in _PREFIXES)
    opposites = {f"{word.removesuffix('ful')}less", word.removesuffix("less"), *chain.from_iterable(prefixed)}
    if word.endswith("less"):
        opposites.add(f"{word.removesuffix('less')}ful")
    return frozenset(opposite for opposite in opposites if min(len(word), len(opposite)) >= _MIN_AFFIXED_CHARS)


def names(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A name of one request must occur in the other, at least in part: "Trump" for "Donald Trump".

    A word that means something else without its capital must have the same case in both: to clean China, or china.
    """
    left_only_cases = left.namesakes - right.namesakes
    if recased := {word for word, is_name in left_only_cases if (word, not is_name) in right.namesakes}:
        return refusal("names", recased, ())
    left_names = _unmatched_names(left, alignment.only_left, {i for i, _, _ in alignment.pairs})
    right_names = _unmatched_names(right, alignment.only_right, {j for _, j, _ in alignment.pairs})
    left_only = {word.text for word in left_names if word.stem not in right.stems}
    return refusal("names", left_only, {word.text for word in right_names if word.stem not in left.stems})


def _unmatched_names(reading: Reading, unmatched: Iterable[int], matched: Container[int]) -> list[Word]:
    """Names of which the other request has no part."""
    content = reading.content

    def is_in_matched_name(i: int) -> bool:
        neighbours = [j for j in (i - 1, i + 1) if j in matched and content[j].capital]
        return any(abs(content[j].place - content[i].place) == 1 for j in neighbours)

    return [content[i] for i in unmatched if content[i].capital and not is_in_matched_name(i)]


def order(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Words must not have exchanged their roles: "from A to B" and "from B to A"."""
    if swap := opposite_preposition(left, right, alignment) or exchanged_small_words(left, right):
        return refusal("order", swap[:1], swap[1:])
    if exchanged := exchanged_statements(left, right):
        return refusal("order", exchanged, ())
    unmatched_count = len(alignment.only_left) + len(alignment.only_right)
    exempt_count = len({"use", "like"} & (left.vocabulary ^ right.vocabulary))  # "use X for Y" means "do Y with X"
    is_comparison = "than" in left.words and "than" in right.words
    if unmatched_count - exempt_count > 0.4 * len(alignment.pairs) and not is_comparison:
        return ""  # reworded, so the order may differ
    if swap := swapped_words(left, right, alignment):
        return refusal("order", swap[:1], swap[1:])
    return "" if is_reworded(left, right, alignment) else refusal("order", rearranged_words(left, right), ())


def question(left: Reading, right: Reading, alignment: Alignment) -> str:
    """If one asks why, where or how many, the other must not ask something else.

    Nor may one ask what the other states, if only the question mark tells: "my card is blocked".
    """
    have_marks = [any(mark in reading.text for mark in "?؟;") for reading in (left, right)]  # Arabic, Greek
    if have_marks[0] != have_marks[1] and _may_be_statement(left) and _may_be_statement(right):
        return "question differs: ?"
    frames = {left.frame, right.frame}
    if _have_other_answers(frames):
        return f"question differs: {left.frame}, {right.frame}"
    if len(left.later_questions) == len(right.later_questions):
        for pair in zip(left.later_questions, right.later_questions, strict=True):
            if _have_other_answers(later_frames := {*map(question_frame, pair)}):
                return refusal("question", later_frames, ())
    stranded = {reading.words[-1] for reading in (left, right) if reading.words} & _STRANDED_PREPOSITIONS
    if stranded - (left.vocabulary & right.vocabulary) and not is_reworded(left, right, alignment):
        return refusal("question", stranded, ())
    is_other_place = frames == {"what", "where"} and _WHAT_OR_WHERE.issuperset((*left.words[:1], *right.words[:1]))
    is_other_actor = frames == {"what", "who"} and _asks_who_acts(left) and _asks_who_acts(right)
    unmatched = chain.from_iterable(unmatched_words(left, right, alignment))
    is_count = frames == {"what", "how many"} and all(word.text == "many" for word in unmatched)
    if is_other_place or is_other_actor or is_count:
        return f"question differs: {left.frame}, {right.frame}"
    return ""


def _asks_who_acts(reading: Reading) -> bool:
    """Whether it asks who or what acts, or is acted on; "who is the best band" and "what is" ask for the same name."""
    opening, verb, after = [*reading.words, "", "", ""][:3]
    return opening in _ACTOR_WORDS and (verb not in _COPULAS or after in _PRONOUNS or is_past(after))


def _have_other_answers(frames: set[str]) -> bool:
    """Whether questions of two kinds cannot have the same answer."""
    if "whether" in frames and frames & _OPEN_FRAMES:
        return True
    return len(frames) > 1 and any(map(frames.issubset, _EXCLUSIVE_FRAMES))


_SPECIFIC_FRAMES = frozenset({"how to", "why", "how many", "how long", "when", "where", "who"})
_OPEN_FRAMES = _SPECIFIC_FRAMES | {"how"}
_CIRCUMSTANCE_FRAMES = frozenset({"how", "why", "when", "where", "who"})
_EXCLUSIVE_FRAMES = _SPECIFIC_FRAMES, _CIRCUMSTANCE_FRAMES, ("what", "why")
_WHAT_OR_WHERE = frozenset(("what", "which", "where"))
_STRANDED_PREPOSITIONS = frozenset(("for", "from", "of", "with"))
_ACTOR_WORDS = word_set("who whom whose what")
_COPULAS = word_set("is are was were")
_PRONOUNS = word_set("i you he she it we they")
_SUBJECTS = _PRONOUNS | word_set("my your his her our their its the this that these those there")


def _may_be_statement(reading: Reading) -> bool:
    """Whether its words may be a statement: in English by how it begins, elsewhere if it has no question word."""
    if reading.english and not ENGLISH_MARKERS.isdisjoint(reading.words):
        if reading.frame != "none" or not _SUBJECTS.issuperset(reading.words[:1]):
            return False
        if reading.words[0] in _PRONOUNS or not FINITE_VERBS.isdisjoint(reading.words):
            return True
        return any(word.endswith("ed") for word in reading.words)
    has_question_part = any(part in reading.text for part in QUESTION_PARTS)
    return QUESTION_WORDS.isdisjoint(reading.words[:2]) and not has_question_part


def restrictions(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Neither may add a restriction: "in India", "for women", "without sugar"."""
    if alignment.only_left and alignment.only_right:  # one word may stand for another
        return ""
    left_only, right_only = unmatched_words(left, right, alignment)
    return refusal("restrictions", _restricted_words(left, left_only), _restricted_words(right, right_only))


def _restricted_words(reading: Reading, unmatched: Iterable[Word]) -> set[str]:
    """Content words after a preposition, not optional ones, nor those after "to", as they tell the purpose."""
    return {
        word.text
        for word in unmatched
        if follows_preposition(reading, word)
        and not is_optional(word.text)
        and "to" not in reading.words[max(0, word.place - 2) : word.place]
    }


def additions(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Neither may say all that the other says with one more content word: "salmon" and "frozen salmon"."""
    left_only, right_only = unmatched_words(left, right, alignment)
    if not is_short(left, right) or (left_only and right_only and not _is_longer_how_to(left, right)):
        return ""
    return refusal("additions", _informative_words(left, left_only), _informative_words(right, right_only))


def _is_longer_how_to(left: Reading, right: Reading) -> bool:
    """Whether one has all words of the other, those of "how can I" and "the best way to" aside."""
    one, other = Counter(essential_words(left)), Counter(essential_words(right))
    return left.frame == right.frame == "how to" and (one <= other or other <= one)


_DISTINGUISHING_WORDS = frozenset(("even", "other", "same"))
_MODIFIERS = frozenset(("life", "used", "world"))
_ADVERBS = word_set("actually also ever exactly just really still very yet")


def _informative_words(reading: Reading, unmatched: Iterable[Word]) -> set[str]:
    return {word.text for word in unmatched if not is_optional(word.text) or _is_distinguishing(reading, word)}


def _is_distinguishing(reading: Reading, word: Word) -> bool:
    """Whether an optional word singles something out: "other people", "the mean salary", "world cup", "used cars".

    Likewise where it is another action or thing: "and help me", "and all mails".
    """
    if word.text == "mean":
        return reading.words[word.place - 1] in ARTICLES
    if word.text in _MODIFIERS:
        return not STOP_WORDS.issuperset(reading.words[word.place + 1 : word.place + 2])
    return word.text in _DISTINGUISHING_WORDS or (
        word.text not in _ADVERBS and "and" in reading.words[word.place - 1 : word.place]
    )


def wording(left: Reading, right: Reading, _: Alignment) -> str:
    """A text to be translated, corrected or spelt must be the same to the letter: "my dog" is not "my dogs"."""
    (left_words, left_given), (right_words, right_given) = left.wording, right.wording
    if left_given and right_given:
        reason = refusal("wording", {*left_given} - {*right_given}, {*right_given} - {*left_given})
        return reason or ("" if left_given == right_given else "wording differs: its order")
    left_only, right_only = left_words - right_words, right_words - left_words
    return refusal("wording", left_only, right_only) if left_only and right_only else ""


def forms(left: Reading, right: Reading, alignment: Alignment) -> str:
    """A word must not be replaced by a derived one (charge, charger) or a similar one (contact, contract).

    If one request has a content word that the other lacks, the score decides instead. An extra letter counts as a typo
    only if it is doubled; "refugee" is no typo of "refuge".
    """
    left_only, right_only = unmatched_words(left, right, alignment)
    unmatched = left_only + right_only
    if not all(is_optional(word.text) for word in unmatched):
        return ""
    for i, j, similarity in alignment.pairs:
        one, other = left.content[i].text, right.content[j].text
        if similarity < 1 and not (unmatched and _is_degree_form(one, other)):
            has_extra_letter = similarity == TYPO_SIMILARITY and len(one) != len(other)
            is_derived = similarity in FORM_SIMILARITIES and not (same_root(one, other) or are_synonyms(one, other))
            if (has_extra_letter or is_derived) and _undoubled_letters(one) != _undoubled_letters(other):
                return refusal("forms", [one], [other])
    return ""


def _is_degree_form(one: str, other: str) -> bool:
    """Whether one is the superlative or the adverb of the other: fast, fastest; anonymous, anonymously."""
    shorter, longer = sorted((one, other), key=len)
    return longer in {f"{shorter}ly", f"{shorter}est", f"{shorter[:-1]}est"}


def _undoubled_letters(word: str) -> tuple[list[str], bool]:
    """The letters of a word, doubled ones once; and whether it ends in "-ee", as "licensee" does."""
    return [letter for letter, _ in groupby(word)], word.removesuffix("s").endswith("ee")


GUARDS: Mapping[str, Guard] = MappingProxyType(
    {
        guard.__name__: guard
        for guard in (
            snippets, language, numbers, units, negation, opposites, symbols, quotations, code, names, order, question,
            restrictions, words, additions, wording, forms, courtesies, scope, links, tense, modality, persons,
            complements, voice, manner, degree, plurals, prepositions, details, mentions,
        )
    }
)  # fmt: skip
"""The guards by name, in the order in which they are asked."""
