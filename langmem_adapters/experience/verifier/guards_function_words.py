"""Guards for function words, which say who, whether something can or must be, and may be what is asked about.

The data of each guard is beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain, pairwise

from langmem_adapters.experience.verifier.alignment import (
    Alignment,
    common_start,
    is_reworded,
    refusal,
    unmatched_words,
)
from langmem_adapters.experience.verifier.guards_scope import next_stems
from langmem_adapters.experience.verifier.reading import Reading
from langmem_adapters.experience.verifier.words import (
    ARTICLES,
    BE_FORMS,
    CONJUNCTIONS,
    FINITE_VERBS,
    I_WORDS,
    MODALS,
    NEGATIONS,
    PASSIVE_AUXILIARIES,
    PREPOSITIONS,
    STOP_WORDS,
    YOU_WORDS,
    stem_of,
)
from langmem_adapters.language.lists import group_names, word_set


def courtesies(left: Reading, right: Reading, _: Alignment) -> str:
    """A courtesy must not be replaced by another: "how do you say hello", "how do you say thanks"."""
    left_only, right_only = left.courtesies - right.courtesies, right.courtesies - left.courtesies
    return refusal("courtesies", left_only, right_only) if left_only and right_only else ""


def links(left: Reading, right: Reading, _: Alignment) -> str:
    """The word "and" must not replace "or", nor may one text only add words with either: "and why", "or without"."""
    if _LINKS.isdisjoint(left.vocabulary | right.vocabulary):
        return ""
    one, other = (Counter(word for word in reading.words if word not in ARTICLES) for reading in (left, right))
    left_only, right_only = one - other, other - one
    left_links, right_links = _LINKS & left_only.keys(), _LINKS & right_only.keys()
    is_addition = len(left_only | right_only) > 1 and not (left_only and right_only)
    return refusal("links", left_links, right_links) if is_addition or (left_links and right_links) else ""


_LINKS = frozenset(("and", "or"))


def modality(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Modal verbs (can, must, should …), "did" and "does" must not be exchanged; but "can you" may be "do you".

    Nor may "does" be replaced by "should", "is it" by "is it always", or "I will" by "I can"; and "do not have to" is
    not "must not".
    """
    if left.vocabulary & right.vocabulary & NEGATIONS and _obligations(left) ^ _obligations(right) == {"must", "to"}:
        return refusal("modality", ["must"], ["have to"])
    if left.frame == right.frame == "none":
        one, other = _intention(left), _intention(right)
        changed = {one, other} if one and other and one != other else {"will"} & (left.vocabulary ^ right.vocabulary)
        is_reworded_will = changed == {"will"} and is_reworded(left, right, alignment)
        return "" if is_reworded_will else refusal("modality", changed, ())
    only_modals = not is_reworded(left, right, alignment)
    if only_modals and (modals := _modals_for_does(left, right) or _modals_for_does(right, left)):
        return refusal("modality", modals, ())
    if not left.frame == right.frame == "whether":
        return ""
    if ("always" in left.vocabulary) != ("always" in right.vocabulary):
        return refusal("modality", ["always"], ())
    is_exchanged = only_modals and _begin_with_other_modals(left, right)
    return refusal("modality", left.words[:1], right.words[:1]) if is_exchanged else ""


_AUXILIARIES = FINITE_VERBS | {"be", "to"}
"""Words without which the verb of a text is finite, as in "how much it weighs"."""
_MODAL_KINDS = group_names("can could, may might, should, must, will would, do does, did")
_OFFERS = frozenset(("can", "do", "will"))
_INTENTION_KINDS = group_names("can could, may might, should, must, will, want would")
_HAVE_FORMS = frozenset(("has", "have"))


def _begin_with_other_modals(left: Reading, right: Reading) -> bool:
    """Whether both begin with a modal verb, "do" or the like, but not of one kind; "can you" may be "do you"."""
    one, other = _MODAL_KINDS.get(left.words[0]), _MODAL_KINDS.get(right.words[0])
    if not one or not other or one == other:
        return False
    return "you" not in (*left.words[1:2], *right.words[1:2]) or not _OFFERS.issuperset((one, other))


def _modals_for_does(left: Reading, right: Reading) -> frozenset[str]:
    """Modal verbs of one text in the place of "does" or "did" of the other, or of none: "what it weighs".

    After "how", "can" may replace "does".
    """
    left_only, right_only = left.vocabulary - right.vocabulary, right.vocabulary - left.vocabulary
    if "did" in left_only:
        return MODALS & right_only
    is_finite = left.frame == right.frame and _AUXILIARIES.isdisjoint(left.vocabulary)
    if "does" not in left_only and not is_finite:
        return frozenset()
    harmless = ("can", "could") if left.frame in {"how", "how to"} else ()
    return (MODALS & right_only).difference(harmless, ("will", "would"))


def _obligations(reading: Reading) -> set[str]:
    """The words for an obligation: "must", and the "to" of "have to"."""
    have_to = {after for before, after in pairwise(reading.words) if before in _HAVE_FORMS and after == "to"}
    return have_to | ({"must"} & reading.vocabulary)


def _intention(reading: Reading) -> str:
    """The modal verb, or "want", after an "I" with which a text begins; "" if there is none."""
    return _INTENTION_KINDS.get(reading.words[1], "") if reading.words[:1] == ["i"] and len(reading.words) > 1 else ""


def persons(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Persons must not be exchanged: mine and yours, what I do to you and you to me, what I do and what he does.

    But "how do I" is "how do you", and "should I wash rice" is "should you", as both mean anybody.

    In German, a capital distinguishes "you" from "they", if other capitals show that the writer uses them.
    """
    formal = _formal_pronouns(left) ^ _formal_pronouns(right)
    if formal and not left.english and _has_capitals(left) and _has_capitals(right):
        return refusal("persons", formal, ())
    has_unmatched = bool(alignment.only_left or alignment.only_right)
    if changed := _changed_cases(left, right, has_unmatched=has_unmatched):
        return refusal("persons", changed, ())
    if not has_unmatched and (exchanged := _nouns_with_exchanged_owners(left, right)):
        return refusal("persons", exchanged, ())
    one, other = _persons(left), _persons(right)
    if one == other or is_reworded(left, right, alignment) or not _are_exchanged(left, right, one, other):
        return ""
    return refusal("persons", set(one), set(other) - set(one))


_POSSESSIVES = {"my": "i", "our": "i", "your": "you"}
_I_OR_YOU = frozenset(("i", "you"))
_ASKS_WHAT_ANYBODY_DOES = re.compile(
    r"\bhow (?:do|can|could|should|would|may|must) (?:i|you)\b"
    r"(?! (?:feel|look|smell|sound)(?: now| today)?$)|^(?:can|could|may|must|shall|should) (?:i|you)\b"
)
_PRONOUN_CASES = (("i", "me"), ("we", "us"), ("he", "him"), ("she", "her"), ("they", "them"))
_GERMAN_FORMAL_PRONOUNS = word_set("sie ihnen ihr ihre ihrem ihren ihrer ihres")
_PERSON_BY_WORD = (
    dict.fromkeys(I_WORDS, "i")
    | dict.fromkeys(YOU_WORDS, "you")
    | group_names("he him his, she her, they them their, its")
)


def _are_exchanged(left: Reading, right: Reading, persons: list[str], others: list[str]) -> bool:
    """Whether persons of one text stand for others, or in another order; not if "I" and "you" mean anybody."""
    removed, added = Counter(persons) - Counter(others), Counter(others) - Counter(persons)
    if not removed and not added:
        return True
    if not removed or not added:
        return False
    mean_anybody = _means_anybody(left, persons, others) and _means_anybody(right, others, persons)
    return not (mean_anybody and _I_OR_YOU.issuperset((*removed, *added)))


def _means_anybody(reading: Reading, persons: list[str], others: list[str]) -> bool:
    """Whether a question with an "I" or "you" that the other text lacks means anybody: "how do you boil rice"."""
    own_persons = _I_OR_YOU.intersection(persons)
    has_one = len(own_persons) == 1 and own_persons.isdisjoint(others)
    return has_one and bool(_ASKS_WHAT_ANYBODY_DOES.search(" ".join(reading.words)))


def _formal_pronouns(reading: Reading) -> set[str]:
    return {word.text for word in reading.content if word.capital and word.text in _GERMAN_FORMAL_PRONOUNS}


def _has_capitals(reading: Reading) -> bool:
    return any(word.capital for word in reading.content)


def _persons(reading: Reading) -> list[str]:
    return [_PERSON_BY_WORD[word] for word in reading.words if word in _PERSON_BY_WORD]


def _changed_cases(left: Reading, right: Reading, *, has_unmatched: bool) -> set[str]:
    """Persons that are more often the subject in one text, and the object in the other: "she owes me", "I owe her".

    If other words differ too, the verb beside them must be the same.
    """
    changed = set()
    for subject, object_ in _PRONOUN_CASES:
        more_subjects, more_objects = (left.words.count(word) - right.words.count(word) for word in (subject, object_))
        if more_subjects * more_objects >= 0:
            continue
        acting, acted_on = (left, right) if more_subjects > 0 else (right, left)
        verbs, other_verbs = _neighbour_stems(acting, subject, 1), _neighbour_stems(acted_on, object_, -1)
        if not has_unmatched or verbs & other_verbs:
            changed |= {subject, object_}
    return changed


def _neighbour_stems(reading: Reading, word: str, step: int) -> set[str]:
    positions = (position + step for position, other in enumerate(reading.words) if other == word)
    return {reading.stems[position] for position in positions if 0 <= position < len(reading.stems)}


def _nouns_with_exchanged_owners(left: Reading, right: Reading) -> set[str]:
    """Nouns that change their owners: "my dog bit her son", "her dog bit my son"; not those that stand together."""
    left_nouns, right_nouns = next_stems(left, _POSSESSIVES), next_stems(right, _POSSESSIVES)
    left_only = {noun for owner in _I_OR_YOU for noun in left_nouns[owner] - right_nouns[owner]}
    right_only = {noun for owner in _I_OR_YOU for noun in right_nouns[owner] - left_nouns[owner]}
    nouns = left_only | right_only
    if not left_only or not right_only or not nouns <= {*left.stems} & {*right.stems}:
        return set()
    stand_together = any(nouns.issuperset(pair) for reading in (left, right) for pair in pairwise(reading.stems))
    return set() if stand_together else nouns


def complements(left: Reading, right: Reading, alignment: Alignment) -> str:
    """Infinitive and gerund must not be exchanged: "stopped to take" and "stopped taking", "used to", "is used to".

    Nor may one ask of the past what the other asks of today: "where did she use to live", "where does she live".
    """
    one, other = _complements(left), _complements(right)
    if one and other and one != other:
        return refusal("complements", one, other)
    unmatched = chain.from_iterable(unmatched_words(left, right, alignment))
    is_past_habit = "used to" in one ^ other and all(word.text in _HABIT_WORDS for word in unmatched)
    return refusal("complements", ["used to"], ()) if is_past_habit else ""


_HABIT_WORDS = word_set("use used live lives try tries")
"""Words of "used to", and forms of a verb that have different stems: "lives" may be of "life", and "tries" is short."""
_TWO_COMPLEMENT_VERBS = frozenset(map(stem_of, ("stop", "remember", "forget", "regret", "used")))


def _complements(reading: Reading) -> set[str]:
    kinds = set()
    for word, stem, after, before in zip(
        reading.words, reading.stems, reading.words[1:], ["", *reading.words], strict=False
    ):
        is_used = word == "used" or (word == "use" and "did" in reading.vocabulary)
        if is_used and after == "to":
            kinds.add("is used to" if before in PASSIVE_AUXILIARIES else "used to")
        if not is_used and stem in _TWO_COMPLEMENT_VERBS and (after == "to" or after.endswith("ing")):
            kinds.add(f"{stem} to" if after == "to" else f"{stem} -ing")
    return kinds


def mentions(left: Reading, right: Reading, _: Alignment) -> str:
    """A function word must not be replaced by one of another kind, such as "and" by "but", nor where it is mentioned.

    It refuses only if all other words are the same.
    """
    start = common_start(left.words, right.words)
    end = common_start(left.words[start:][::-1], right.words[start:][::-1])
    one, other = (reading.words[start : len(reading.words) - end] for reading in (left, right))
    replaced = {*one, *other}
    if not (one and other and replaced <= _FUNCTION_WORDS):
        return ""
    before, after = left.words[:start], left.words[len(left.words) - end :]
    is_about_words = bool(_ABOUT_WORDS.search(left.text))
    if not after:
        may_replace = replaced <= _PRONOUNS and not is_about_words
    else:
        are_of_one_kind = any(map(replaced.issubset, _INTERCHANGEABLE)) or not len(one) == len(other) == 1
        may_replace = are_of_one_kind and not _are_mentioned(replaced, before, after[0], is_about_words=is_about_words)
    return "" if may_replace else refusal("mentions", one, other)


_DETERMINERS = word_set("a an the my our your this that these those its")
_PRONOUNS = word_set("it this that these those them")
_FUNCTION_WORDS = STOP_WORDS | FINITE_VERBS | {"each", "every", "like"}
_INTERCHANGEABLE = (
    _DETERMINERS,
    PREPOSITIONS | {"like"},
    _PRONOUNS,
    FINITE_VERBS - word_set("has have had") | word_set("be been being"),
    FINITE_VERBS - BE_FORMS,
    word_set("each every"),
    word_set("i you we"),
    word_set("what which who whom that it"),
    word_set("what how when if"),
)
"""Function words that often replace each other without a difference; other guards see where they do not."""
_GOVERNING = _DETERMINERS - _PRONOUNS, PREPOSITIONS
"""Words that need a noun after them; a pronoun does not."""
_NO_NOUNS = PREPOSITIONS | CONJUNCTIONS | FINITE_VERBS
_FRAME_WORDS = 3  # of "how do you", "what are the"
_QUESTION_WORDS = word_set("how what when where which who why")
_ABOUT_WORDS = re.compile(
    r"\b(?:words?|sentences?|spell|spelt|pronounced?|grammar|in english|translated?|(?:pro)?nouns?|(?:ad)?verbs?|"
    r"adjectives?|prepositions?|conjunctions?|part of speech|plural|singular|letters?|rhymes?|synonyms?|antonyms?|"
    r"vowel|comma|how (?:do|does|would|can) (?:you|i|we|one) say)\b"
)


def _are_mentioned(replaced: set[str], before: list[str], next_word: str, *, is_about_words: bool) -> bool:
    """Whether words lack what must follow them, or whether a question about words treats them."""
    if any(map(replaced.issubset, _GOVERNING)):
        if next_word not in STOP_WORDS:
            return next_word == "instead"
        if next_word in _NO_NOUNS:
            return True
    if replaced <= FINITE_VERBS and not FINITE_VERBS.isdisjoint(before[-1:]):
        return True
    is_frame = not before or (len(before) < _FRAME_WORDS and before[0] in _QUESTION_WORDS)
    return is_about_words and not is_frame
