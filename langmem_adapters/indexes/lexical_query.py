"""What a query is searched by: its terms, and how much each of them counts."""

from __future__ import annotations

import unicodedata
from collections import Counter

from langmem_adapters.language.analysis import Analyzer
from langmem_adapters.language.foreign_stop_words import foreign_stop_words
from langmem_adapters.language.query_dates import dated_part, possible_day_words, split_dates
from langmem_adapters.language.questions import asked_part, split_framing
from langmem_adapters.text import both_ends

ASIDE_WEIGHT = 0.5
"""How much a word counts that is said beside a question: it may be small talk, or what the question is about."""
_MAX_ASIDE_TERMS = 24  # more of them, as of a mail beside a question, count together as so many at most
_STOP_WORD_WEIGHT = 0.1
_QUERY_END_CHARS = 100_000  # read at the beginning and at the end of a longer query


def query_terms(
    query: str, analyzer: Analyzer, stop_words: frozenset[str], *, of_message: bool = False
) -> dict[str, float]:
    """The terms of a query with their counts.

    Stop words of its language, and words that only say that one asks, count for little, and what is said beside a
    question counts half; a long text there counts less the longer it is, above all in a message (``of_message``), as a
    whole prompt is to find one like it. A date that it names becomes the words that a document of that date has; a
    number alone may be a day.
    """
    query = truncate_query(query)
    dated = dated_part(query)
    dateless, named_date_words = split_dates(dated)
    day_words = possible_day_words(dateless)
    query = dateless if dated == query else split_dates(query)[0]
    terms = analyzer(query)
    informative_terms = [term for term in terms if term not in stop_words]
    counts: dict[str, float] = {**Counter(informative_terms or terms)}
    plain, framing = split_framing(query)
    asked_text = asked_part(query)
    asked = plain if asked_text == query else split_framing(asked_text)[0]
    asked_terms = Counter(terms if asked == plain else analyzer(asked))
    if not asked_terms.keys().isdisjoint(counts):  # otherwise what it asks about is all elsewhere
        share = min(1.0, _MAX_ASIDE_TERMS / max(1, len(counts.keys() - asked_terms)))
        aside_weight = ASIDE_WEIGHT * (share * share if of_message else share)
        for term, count in counts.items():
            asked_count = min(asked_terms[term], count)
            counts[term] = asked_count + aside_weight * (count - asked_count)
    # Not all that the plain text lacks: without "bitte" it may be taken for English, in which words have no parts.
    framing_terms = {*analyzer(framing)}.difference(analyzer(plain)) if framing and plain.strip() else set[str]()
    if not framing_terms.issuperset(counts):
        counts |= {term: _STOP_WORD_WEIGHT * counts[term] for term in framing_terms if term in counts}
    if foreign_words := foreign_stop_words(query):
        light_terms = analyzer(" ".join(foreign_words))
        counts |= {term: _STOP_WORD_WEIGHT * counts[term] for term in light_terms if term in counts}
    if named_date_words:
        return dict.fromkeys(analyzer(f"{named_date_words} {day_words}"), 1.0) | counts
    if day_words:
        return dict.fromkeys(analyzer(day_words), _STOP_WORD_WEIGHT) | counts
    return counts


def truncate_query(query: str) -> str:
    """The query, or of a long one its beginning and its end; composed as documents are."""
    return composed(both_ends(query, _QUERY_END_CHARS))


def composed(text: str) -> str:
    """The text with each accented letter as one character, as the names of months and speakers are compared."""
    return unicodedata.normalize("NFC", text)
