"""Whether common words of two readings have changed places, and whether that matters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise
from typing import TypeAlias

from langmem_adapters.experience.verifier.alignment import Alignment, unmatched_words
from langmem_adapters.experience.verifier.reading import Reading, Word
from langmem_adapters.experience.verifier.word_order import is_superlative
from langmem_adapters.experience.verifier.words import CONJUNCTIONS, NEGATIONS, PREPOSITIONS, STOP_WORDS, UNITS, stem_of
from langmem_adapters.language.lists import group_names, word_set

_DIRECTIONS = group_names("from, to into onto, than, before, after")
_INTERCHANGEABLE = {frozenset(("by", "using")), frozenset(("using", "with"))}
"""Prepositions that may replace each other, if all else is the same; "using" is one, as a form of "use"."""
_INTERCHANGEABLE_WITH = {
    frozenset(prepositions.split()): frozenset(map(stem_of, words.split()))
    for prepositions, words in (
        ("at in", "airport bank college home hospital hotel office restaurant school shop station store university"),
        ("by on", "bike boat bus ferry plane ship train tram"),
        ("by with", "pay"),
        ("from of", "made"),
        ("from on", "clear delete erase remove uninstall wipe"),
        ("as like", "such"),
        ("like of", "life"),
        ("in with", "bash css docker excel git html java javascript jquery matlab numpy pandas php python r react sql"),
    )
}
"""Likewise, if the text has one of these words. Others may not: a gift "for" her is none "from" her."""
_GOVERNING_PREPOSITIONS = PREPOSITIONS | {"like"}
_TRAVEL_PREPOSITIONS = frozenset(("by", "on"))  # "by train", but not for "trained"
_VERB_ENDINGS = ("ing", "ed")
_LOCATION_PREPOSITIONS = frozenset(("at", "in", "on"))
_ACTION_FRAMES = frozenset(("how to", "how", "why", "whether"))
_NEGATIVE_ADVERBS = NEGATIONS - frozenset(("except", "excluding", "without"))
_ATTRIBUTE_PREPOSITIONS = frozenset(("of", "for", "in"))
_ATTRIBUTE_QUESTION = re.compile(
    r"^(?:what|which) (?:is|are|was|were) (?:the )?(?:(?:most \w+|\w+est) \w+|(?:\w+ ){0,2}"
    r"(?:advantage|age|balance|capital|code|condition|cost|currency|date|deadline|definition|fee|formula|future|"
    r"ingredient|law|length|limit|name|number|port|price|process|purpose|rate|ratio|recipe|requirement|risk|role|rule|"
    r"salary|size|status|symbol|symptom|syntax|value|word)s?) (?:of|for|in)\b"
)
"""Questions about an attribute: the rules "of", "for" or "in" curling; but love "of" children is not "for" them."""
_COMPOUND_SEPARATORS = word_set("of in with on for is are that which the a an")
"""Words that may separate the parts of a compound: "a cron job", "a job with cron"."""
_CLAUSE_MARKERS = PREPOSITIONS | word_set("then i he she they we am are is was were")
"""Words that show that "and" joins two clauses rather than two things."""
_OMITTED_WORDS = word_set("like describe explain show")
"""Content words that one of two texts with the same phrases may lack: a reading has no "explain" before a "how"."""
_SEQUENCE_WORDS = word_set("then afterwards afterward subsequently thereafter followed")
"""Words by which a text tells steps."""
_MATTERS_WHERE = re.compile(
    r"\b(?:clockwise|concatenat(?:es|ed|ing)|(?<!\bi )concatenate|left to right|right to left|in (?:this|that) order|"
    r"in a row)\b|"
    r"\b(?:first|second|third|fourth|fifth|last|middle)\b(?! question)(?:[^:]+:|:(?![\w' ]{1,60}? or [\w' ]{1,60}\W*$))"
)
"""Requests in which the order of a list counts: which is the first of these: A, B; not which came first: A or B."""
_SINGULAR_VERBS = word_set("is was has does")
_COPULAS = frozenset(("is", "are"))
_PRONOUNS = word_set("me you him her it us them")
_DIRECTED_WORDS = {"into", "onto", "than", "convert", "transform", "translate"}
_MAX_SWAP_WORDS = 24  # a longer text has too many orders to try
_MIN_REWORDED_WORDS = 10  # a text with so many, and others besides, is more often reworded than reversed in meaning
_TWO_WORDS = 2
_MIN_YEAR_DIGITS = 4
_MAX_PREPOSITION_DISTANCE = 3  # words: "in all the parks"
_Pair: TypeAlias = "tuple[int, int, float]"


def swapped_words(left: Reading, right: Reading, alignment: Alignment) -> tuple[str, str] | None:
    """Two words that have changed places where that matters; None, if there are none.

    They have if exchanging them gives the other text's order, or if one has another preposition; "like" is treated as
    one here: a song like hers is not one by her. It does not matter

    - if only "and", "or" and the like stand between them, and no word that has stayed: "keep A and cancel B" is "cancel
      B and keep A", but not "cancel A and keep B";
    - if each has moved with its preposition, and past no word that has stayed: "In Oslo, who …", "Who … in Oslo", but
      "5 mg in the morning and 10 at night" is not "5 at night and 10 in the morning";
    - if a compound is taken apart: "the cron job", "the job of cron";
    - in a text of ten words or more that has unmatched words too, as it is reworded: unless both words are names or
      numbers, nothing else has moved, or something is converted into something, or compared with it.

    A text that tells steps, with "then", must keep their order; so must one that asks for the first of a list, for what
    is in the middle, or to concatenate, even around "and". So must one of more than 24 words: it may mention
    everything twice, such as a dose for the morning and one for the evening, so two exchanged words change its meaning.
    """
    pairs = alignment.pairs
    order = [right_index for _, right_index, _ in pairs]
    unmatched = alignment.only_left or alignment.only_right
    unmatched_texts = {word.text for side in unmatched_words(left, right, alignment) for word in side}
    if unmatched_texts <= _OMITTED_WORDS and (changed := _changed_preposition(left, right, pairs)):
        return changed
    if order == sorted(order):
        return None
    if all(_MATTERS_WHERE.search(reading.text) for reading in (left, right)):
        i, j, *_ = _misplaced_positions(order)
        return left.content[pairs[i][0]].text, left.content[pairs[j][0]].text
    tells_steps = not _SEQUENCE_WORDS.isdisjoint(left.vocabulary & right.vocabulary)
    if len(order) > _MAX_SWAP_WORDS or tells_steps:
        return _misplaced_words(left, right, pairs)
    has_direction = not _DIRECTED_WORDS.intersection(left.words).isdisjoint(right.words)
    is_reworded = len(order) >= _MIN_REWORDED_WORDS and bool(unmatched) and not has_direction
    for i, j in _exchanged_positions(order):
        first, second = left.content[pairs[i][0]], left.content[pairs[j][0]]
        all_else_stays = _misplaced_positions(order) == [i, j]
        if is_reworded and not all_else_stays and not (_is_named(first) and _is_named(second)):
            continue
        have_same_neighbour = j == i + 2 and _share_neighbour(left, pairs[i][0], pairs[j][0])
        is_adjacent = j == i + 1 or have_same_neighbour or _move_with_neighbours(order, i, j)
        if not _may_move(left, right, pairs[i], pairs[j], is_adjacent=is_adjacent):
            return first.text, second.text
    return None if unmatched else _swapped_phrases(left, right, pairs) or _rotated_words(left, order)


def _exchanged_positions(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The positions whose exchange puts two more items in order, or all."""
    in_order = _longest_increasing(order)
    for i, j in combinations(range(len(order)), 2):
        if order[i] > order[j]:
            exchanged = [*order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :]]
            restored = _longest_increasing(exchanged)
            if restored == len(order) or restored >= in_order + 2:
                yield i, j


def exchanged_small_words(left: Reading, right: Reading) -> tuple[str, str] | None:
    """A pronoun and a word, or two stop words, that have exchanged their places.

    "Tell me to trust Al", "tell Al to trust me"; "who instead of whom", "whom instead of who".
    """
    places = [n for n, pair in enumerate(zip(left.words, right.words, strict=False)) if pair[0] != pair[1]]
    if len(left.words) != len(right.words) or len(places) != _TWO_WORDS:
        return None
    (one, other), right_pair = ([reading.words[n] for n in places] for reading in (left, right))
    between = left.words[places[0] + 1 : places[1]]
    is_small = STOP_WORDS.issuperset((one, other)) or not _PRONOUNS.isdisjoint((one, other))
    if right_pair != [other, one] or not is_small or not between:
        return None
    return None if _joins_things(between) else (one, other)


def opposite_preposition(left: Reading, right: Reading, alignment: Alignment) -> tuple[str, str] | None:
    """A word with opposite prepositions in the two texts, such as "from" and "to"; None, if there is none."""
    for word, _, preposition, other_preposition in _preposition_changes(left, right, alignment.pairs):
        direction, other_direction = _DIRECTIONS.get(preposition), _DIRECTIONS.get(other_preposition)
        if direction and other_direction and direction != other_direction:
            return word.text, other_direction
    return None


def _changed_preposition(left: Reading, right: Reading, pairs: Sequence[_Pair]) -> tuple[str, str] | None:
    """A word with another preposition in the other text, which is otherwise the same; None, if there is none."""
    for word, other_word, preposition, other_preposition in _preposition_changes(left, right, pairs):
        if not _are_interchangeable(left, right, word, other_word, frozenset((preposition, other_preposition))):
            return word.text, _DIRECTIONS.get(other_preposition, other_preposition)
    one, other = _pronoun_prepositions(left), _pronoun_prepositions(right)
    for pronoun in sorted(one.keys() & other.keys()):
        if one[pronoun] != other[pronoun] and {one[pronoun], other[pronoun]} not in _INTERCHANGEABLE:
            return pronoun, other[pronoun]
    return None


def _preposition_changes(
    left: Reading, right: Reading, pairs: Sequence[_Pair]
) -> Iterator[tuple[Word, Word, str, str]]:
    """Words with another preposition in the other text, with the word that corresponds there, and both prepositions."""
    for i, j, _ in pairs:
        word, other_word = left.content[i], right.content[j]
        if _words_before(left, word) == _words_before(right, other_word):
            continue
        preposition, other_preposition = _preposition(left, word), _preposition(right, other_word)
        if preposition and other_preposition and preposition != other_preposition:
            yield word, other_word, preposition, other_preposition


def _are_interchangeable(
    left: Reading, right: Reading, word: Word, other_word: Word, prepositions: frozenset[str]
) -> bool:
    """Whether both prepositions of corresponding words mean the same."""
    words_and_stems = zip((*left.words, *right.words), (*left.stems, *right.stems), strict=True)
    stems = (stem for text, stem in words_and_stems if prepositions != _TRAVEL_PREPOSITIONS or text[-2:] != "ed")
    if prepositions in _INTERCHANGEABLE or not _INTERCHANGEABLE_WITH.get(prepositions, frozenset()).isdisjoint(stems):
        return True
    if "to" in prepositions and (word.text.endswith(_VERB_ENDINGS) or other_word.text.endswith(_VERB_ENDINGS)):
        return True  # to cook, of cooking, for cooked
    if prepositions <= _LOCATION_PREPOSITIONS and _is_named(word):
        return "at" in prepositions or left.frame in _ACTION_FRAMES  # run it in or on Linux; a film on Rome, in Rome
    if "of" not in prepositions or not prepositions <= _ATTRIBUTE_PREPOSITIONS:
        return False
    return all(_ATTRIBUTE_QUESTION.match(reading.text) for reading in (left, right))


def _misplaced_words(left: Reading, right: Reading, pairs: Sequence[_Pair]) -> tuple[str, str] | None:
    """The first two words out of place; None, if there are none, or only two that may move, as around "and"."""
    i, j, *others = _misplaced_positions([right_index for _, right_index, _ in pairs])
    if not others and _may_move(left, right, pairs[i], pairs[j], is_adjacent=j == i + 1):
        return None
    return left.content[pairs[i][0]].text, left.content[pairs[j][0]].text


def _is_named(word: Word) -> bool:
    """Whether a word is a name, a number or a unit, which identifies a thing rather than describes it."""
    return word.capital or word.text in UNITS or not word.text.isalpha()


def _move_with_neighbours(order: Sequence[int], *positions: int) -> bool:
    """Whether the moved words each kept a neighbour, as when whole clauses move."""
    return all(order[i] + 1 in order[i + 1 : i + 2] or order[i] - 1 in order[max(i - 1, 0) : i] for i in positions)


def _share_neighbour(reading: Reading, i: int, j: int) -> bool:
    """Whether two words, ``i`` before ``j``, both precede or follow a word: "American English and British English"."""
    stems = [word.stem for word in reading.content]
    return stems[max(i - 1, 0) : i] == stems[j - 1 : j] or stems[i + 1] in stems[j + 1 : j + 2]


def _swapped_phrases(left: Reading, right: Reading, pairs: Sequence[_Pair]) -> tuple[str, str] | None:
    """Two phrases that changed places around words that stayed: "my big dog bit a cat", "a cat bit my big dog"."""
    phrases = [pair for k, pair in enumerate(pairs) if k == 0 or pair[1] != pairs[k - 1][1] + 1]
    misplaced = _misplaced_positions([right_index for _, right_index, _ in phrases])
    if len(misplaced) != _TWO_WORDS or misplaced[1] == misplaced[0] + 1:
        return None
    pair, other_pair = (phrases[position] for position in misplaced)
    first, second = left.content[pair[0]], left.content[other_pair[0]]
    prepositions = [_preposition(left, word) for word in (first, second)]
    if CONJUNCTIONS.intersection(left.words[first.place : second.place]) and not any(prepositions):
        return None  # clauses, whose order does not matter
    right_words = right.content[pair[1]], right.content[other_pair[1]]
    have_same_prepositions = sorted(prepositions) == sorted(_preposition(right, word) for word in right_words)
    return (first.text, second.text) if have_same_prepositions else None


def _rotated_words(left: Reading, order: Sequence[int]) -> tuple[str, str] | None:
    """Two of three or more words that moved singly: "Lock A, open B and clean C", "open A, clean B and lock C"."""
    misplaced = _misplaced_positions(order)
    moved_singly = all(after > before + 1 for before, after in pairwise(misplaced))
    if not moved_singly or len(misplaced) <= _TWO_WORDS:
        return None
    return left.content[misplaced[0]].text, left.content[misplaced[1]].text


def _may_move(left: Reading, right: Reading, pair: _Pair, other_pair: _Pair, *, is_adjacent: bool) -> bool:
    """Whether two words may have changed places without a difference: see :func:`swapped_words`."""
    first, second = left.content[pair[0]], left.content[other_pair[0]]
    right_first, right_second = right.content[pair[1]], right.content[other_pair[1]]
    if {first.text, second.text} & _NEGATIVE_ADVERBS:
        return True
    between = left.words[first.place + 1 : second.place]
    right_between = right.words[right_second.place + 1 : right_first.place]
    if is_adjacent and _joins_things(between) and _joins_things(right_between):
        before, after = left.words[max(0, first.place - 2) : first.place], left.words[second.place + 1 :][:1]
        is_one_thing = "and" in between and not _SINGULAR_VERBS.isdisjoint(after)
        return not is_one_thing and len({"and", "or"}.intersection((*before, *between, *after))) <= 1
    separators = {*between, *right_between}
    if bool(between) != bool(right_between) and _COMPOUND_SEPARATORS.issuperset(separators):
        asks_which = left.words[0] in {"what", "which"}
        return _make_compound((first.text, second.text), separators if asks_which else separators - _COPULAS)
    prepositions = _preposition(left, first), _preposition(left, second)
    if not is_adjacent or prepositions[0] == prepositions[1]:
        return False
    return prepositions == (_preposition(right, right_first), _preposition(right, right_second))


def _make_compound(words: Sequence[str], separators: Collection[str]) -> bool:
    """Whether words mean the same without the ones between them: "job with cron", "which lake is the deepest".

    A cake for 12 is not 12 cakes, unlike an election in 2020; and which fish is raw tuna is not which raw fish is tuna.
    """
    are_counted = any(word.isdigit() and len(word) < _MIN_YEAR_DIGITS for word in words)
    is_ranked = any(word in {"best", "better"} or is_superlative(word) for word in words)
    return not are_counted and (is_ranked or _COPULAS.isdisjoint(separators))


def _joins_things(words: Sequence[str]) -> bool:
    """Whether words between two others join them as things, by "and" or the like, and not as clauses."""
    return not CONJUNCTIONS.isdisjoint(words) and _CLAUSE_MARKERS.isdisjoint(words)


def _preposition(reading: Reading, word: Word) -> str:
    """The preposition that governs a word: the one before it, with only stop words between; "" if there is none."""
    for word_before in reversed(_words_before(reading, word)):
        if word_before in _GOVERNING_PREPOSITIONS:
            return word_before
        if word_before not in STOP_WORDS:
            break
    return ""


def _words_before(reading: Reading, word: Word) -> list[str]:
    return reading.words[max(0, word.place - _MAX_PREPOSITION_DISTANCE) : word.place]


def _pronoun_prepositions(reading: Reading) -> dict[str, str]:
    """The prepositions directly before pronouns, by pronoun: to bark "at" me."""
    pairs = pairwise(reading.words)
    return {pronoun: word for word, pronoun in pairs if pronoun in _PRONOUNS and word in PREPOSITIONS}


def _misplaced_positions(order: Sequence[int]) -> list[int]:
    """The positions of the items that would be elsewhere, if they were sorted."""
    return [n for n, (item, sorted_item) in enumerate(zip(order, sorted(order), strict=True)) if item != sorted_item]


def _longest_increasing(order: Sequence[int]) -> int:
    tails: list[int] = []
    for value in order:
        position = bisect_left(tails, value)
        tails[position : position + 1] = [value]
    return len(tails)
