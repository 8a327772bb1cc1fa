"""The symbols of a request that are no words but carry meaning: "5 + 3", "10²", 6" and 6', 😀, and the mention of —."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import chain, groupby

from langmem_adapters.experience.verifier.piece_cache import cached_per_piece
from langmem_adapters.experience.verifier.words import ARTICLES, CONJUNCTIONS, FOREIGN_MARKERS, PREPOSITIONS
from langmem_adapters.language.lists import word_set

_MAX_OPERAND_CHARS = 60  # in which the operands of a sign are looked for
_SYMBOLS = re.compile(
    r"(?=[-:!?&%/+*^=<>|~\\×÷≤≥≠·\s])(?:[-:!?&%/]{0,3}[+*^=<>|~\\×÷≤≥≠·]+(?:[/&]|-(?!\d))*|"  # noqa: RUF001 - these signs are meant
    r"(?<=[\d)])\s*[-/](?=\s*[\d(])|(?<=\s)-(?=\s*[\d(])|"
    r"!(?=[\w=(])|(?:(?<=\d)|(?<![^\W_][^\W_])(?<=[^\W\d_]))!|\?\.(?=\w)|(?<=\s)\?\?|"
    r"(?<![^\W_][^\W_])(?<=[^\W\d_])(?:\s+[-/](?=\s+[^\W\d_](?![^\W_]))|/(?=[a-z](?![^\W_]))))"  # x - y, x/y
)
_HAS_SYMBOL = re.compile(r"[-/!+*^=<>|~\\×÷≤≥≠·]|\?[.?]")  # noqa: RUF001 - these signs are meant
_EXACT_TEXT = re.compile(
    r"https?://\S*[^\s?!,.;:)]|\b[ivIV]+(?:-[ivIV]+)+\b|\b[YyMDdHhms]{2,4}(?:[-/.:][YyMDdHhms]{1,4})+\b|"
    r"%[A-Za-z](?!\w)|(?<!\S)--?[A-Za-z]{1,2}(?![\w-])|"
    r"(?<!\S)(?:@{1,2}|#|/)(?=[a-z_])|(?<!\w)_+[^\W_]|[^\W_]_+(?!\w)"
)
"""Text that must be exactly the same: addresses, ii-V-I, YYYY-MM-dd, %s, options, @x, _x, x_."""
_LABELS = re.compile(
    r"\b(?:(?i:answer|classif|label|output|repl|respond|return|say|tag|write)[^.?!\n]{0,80}? "
    r"([A-Z]{2,}(?:, [A-Z]{2,})*,? or [A-Z]{2,})|[Ww]ord ([A-Z]{2,}))\b"
)
"""Labels in capitals, from which an answer is to take one, and mentions: "reply with YES or NO", "the word ERROR"."""
_CAPITALS = re.compile(r"[A-Z]{2}")
_MORSE = re.compile(r"\s(?:[.-]+\s+){2,}[.-]+")
_NON_COMMUTATIVE = frozenset("-/<>^~")
_LEFT_OPERAND, _RIGHT_OPERAND = re.compile(r"(\w+)(\s*)$"), re.compile(r"(\s*)(\w+)")
_MENTIONED_SIGN = re.compile(r"[@#;:?!.](?<=\s.)(?:(?=\s+[^\W_A-Z])|(?<!\?)(?=\?))")
_ATTACHED_QUESTION_MARK = re.compile(r"\S[?؟]\s*$")
_LONE_SIGN = re.compile(  # begins with a class of characters, which the engine finds quickly
    r"""[\W_](?:(?<=\w[^\S\n]\S)(?<![*^=<>|~\\{}\[\]%])(?!(?<=["'`“‘«(])[^\w\s]["'`”’»)])"""  # noqa: RUF001 - meant
    r"""(?:[^\w\s*^=<>|~\\{}\[\]%]|_){0,2}?(?P<lone>)"""
    r"""(?=\s|[?.!]?$|[?.!]\s+[^\sa-z])(?![^\S\n]+[A-Za-z\d_]\b)|"""  # not between operands
    r"""(?<=[^\S\n]["'`“‘«(]\S)(?<!`)(?:[^\w\s`]|_){0,2}(?=["'`”’»)]))"""  # noqa: RUF001 - meant
)
_LONE_VARIANT = re.compile(r"""(?<![^\s"'`“‘«(])(?<!\d\s)[^\x00-\x7f\s]{1,3}(?![^\s"'`”’»).,;:?!])""")  # noqa: RUF001 - meant
_VARIANTS = ("<circle>", "<compat>", "<font>", "<square>", "<sub>", "<super>")
"""Kinds of characters that, alone, mean something else than the letters and digits they are variants of."""
_LAST_LATIN_LETTER = "\u024f"  # but for rare ones
_PLAIN_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u2033", '"'),
        **dict.fromkeys("\u2010\u2012\u2013\u2212", "-"),
        "\u2014": " - ",
    }
)
_STOPS = re.compile(r"[.,;:]|[.?!]+")
_BEFORE_MENTION = ARTICLES.union(
    PREPOSITIONS,
    CONJUNCTIONS,
    FOREIGN_MARKERS,
    word_set("""am are be been being between called can could did do does had has have is may might must should was were
        will would"""),
)
"""Words that need another after them: a sign in its place is one that is spoken of, as in "what does ; mean"."""
_AFTER_MENTION = PREPOSITIONS.union(FOREIGN_MARKERS, ("mean", "or", "vs", "versus"))
"""Words with which a sentence seldom goes on after a dash: "how do I type — in Word"."""
_QUOTATION = re.compile(r"""(?<!\d)"[^"]*"|(?<!\w)'[^']+'(?!\w)""")
_PRIME = re.compile(r"""(?<=\d)(?:''|["'])(?!s\b)|(?<![^\W_][^\W_])(?<=[^\W\d_])(?:''|["'])(?!\w)""")
_MAY_BE_PRIME = re.compile(r"""["'](?:(?<=\d.)|(?!\w))""")
_SUPERSCRIPT = re.compile(r"(?:(?<=[\d)\]])|(?<![^\W_][^\W_])(?<=[a-ln-zA-Z]))(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ])")
_SUBSCRIPT = re.compile(r"(?<=\d)(?=[₀₁₂₃₄₅₆₇₈₉])")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_PICTOGRAPH_CATEGORIES = frozenset(("So", "Sk", "Sm", "Sc", "Co", "Cn", "Cs"))
"""Symbols, and what is none to this Python: private characters, and those of a later Unicode, such as new emoji."""
_MARKS = "§¶†‡※⁂"  # that Unicode calls punctuation, though they end or part no sentence
_NAMED_SIGNS = "€£¥₹"  # signs that normalize_spelling replaces by names
_POUNDS = re.compile(r"£|(?<=\d) ?lb")
_CASED_UNIT = re.compile(
    r"[kKMGTm](?<![^\W\d_].)(?:(?:(?<!m)i?(?P<byte>B)|(?<![km])i?(?P<bit>b))(?:it|yte|ps)?|"
    r"(?:(?P<milli>(?<=m))|(?P<mega>(?<=M)))(?:Hz|Pa|[AFHJNSTVWgm]|Ω))(?![^\W\d_])"
)


@lru_cache(maxsize=64)  # asked for before and after code is taken out
def normalize_signs(text: str) -> str:
    """A text with one sign for equivalent ones: straight quotation marks, x^2 for x², and U2014 for a mention of —.

    A sign is mentioned, rather than used, if it is quoted, or stands alone where a word is missing: "what does — mean",
    but not "Bonn — what is it". So are variants of letters and digits that stand alone, such as ² and ™; but not the
    unit in "25 ℃".
    """
    text = _LONE_SIGN.sub(_name_if_mentioned, text)
    if text.isascii():
        return text
    text = _LONE_VARIANT.sub(_name_if_variant, text)
    marked = _SUBSCRIPT.sub("_", _SUPERSCRIPT.sub("^", text))  # 10^² for 10², so that it does not become 102
    return unicodedata.normalize("NFKC", marked).translate(_PLAIN_SIGNS)


def _name_if_variant(match: re.Match[str]) -> str:
    signs = match[0]
    is_variant = all(unicodedata.decomposition(sign).startswith(_VARIANTS) for sign in signs)
    return _names_of(signs) if is_variant and any(map(str.isalnum, unicodedata.normalize("NFKC", signs))) else signs


def _name_if_mentioned(match: re.Match[str]) -> str:
    sign = match[0]
    if not all(map(_may_be_mentioned, sign)):
        return sign
    if match["lone"] is not None and not _stands_for_word(match.string, sign, match.span()):
        return sign
    return _names_of(sign)


def _names_of(signs: str) -> str:
    return " ".join(f"U{ord(sign):04X}" for sign in signs)


def _may_be_mentioned(character: str) -> bool:
    """Whether a character is punctuation or the like; other signs are symbols wherever they stand."""
    if character in _MARKS:
        return False
    return character in "`´$+" or unicodedata.category(character)[0] == "P"  # noqa: RUF001 - meant


def _stands_for_word(text: str, sign: str, span: tuple[int, int]) -> bool:
    """Whether the words around a sign that stands alone need another word in its place."""
    rest = text[span[1] : span[1] + _MAX_OPERAND_CHARS]
    word = text[max(0, span[0] - _MAX_OPERAND_CHARS) : span[0]].rsplit(maxsplit=1)[-1]
    is_object = word.lower() in _BEFORE_MENTION or word.endswith(("'s", "’s"))  # noqa: RUF001 - meant
    if _STOPS.fullmatch(sign):
        return is_object and (bool(rest.strip(" .?!")) or (rest.startswith("?") and "?" not in sign))
    if word[-1] > _LAST_LATIN_LETTER and unicodedata.category(sign[0]) != "Pd":
        return True  # elsewhere, only dashes stand alone
    if not rest:
        return is_object or sign != "…"  # which may trail off: "tell me more …"
    return is_object or rest[0] == "?" or not _AFTER_MENTION.isdisjoint(rest.lower().split()[:1])


def symbols(text: str, *, english: bool) -> tuple[str, ...]:
    """The symbols, sorted. In French, a sign that stands alone may be punctuation, as then the one at the end is."""
    signs = _pictographs(text)
    if _CAPITALS.search(text):
        signs += [match[1] or match[2] for match in _LABELS.finditer(text)]
    if _HAS_SYMBOL.search(text):
        signs += [_sign_with_operands(text, match) for match in _SYMBOLS.finditer(text)]
    signs += [*chain.from_iterable(_exact_texts(text.split())), *map(str.strip, _MORSE.findall(text))]
    if english or _ATTACHED_QUESTION_MARK.search(text):
        signs += _MENTIONED_SIGN.findall(text)
    if _MAY_BE_PRIME.search(text):
        signs += [mark.replace("''", '"') for mark in _PRIME.findall(_QUOTATION.sub(" ", text))]
    return tuple(sorted(signs))


@cached_per_piece
def _exact_texts(piece: str) -> list[str]:
    return _EXACT_TEXT.findall(piece)


def cased_units(text: str) -> frozenset[str]:
    """Units that differ only in case, and their order: Mb and MB, mg and Mg. "mb" may be either, so it is none.

    Also those that "pounds" may mean: £5 is not 5 lb.
    """
    units = dict.fromkeys(f"{match.lastgroup}" for match in _CASED_UNIT.finditer(text))
    pounds = ("£" if sign == "£" else "lbs" for sign in _POUNDS.findall(text))
    return frozenset([*units, " ".join(units)] if units else ()).union(pounds)


def _pictographs(text: str) -> list[str]:
    """Pictures, signs and currencies beyond ASCII, runs as one (a flag has two); and words with combining marks."""
    if text.isascii():
        return []
    runs = chain.from_iterable(groupby(run, _is_pictograph) for run in _BEYOND_ASCII.findall(text))
    pictographs = ("".join(run) for is_pictograph, run in runs if is_pictograph)
    return [*pictographs, *chain.from_iterable(_marked_words(text.split()))]


@cached_per_piece
def _marked_words(piece: str) -> list[str]:
    """Words with combining marks, such as vowel signs: marks are no part of a reading's words."""
    words = ("".join(run) for is_word, run in groupby(piece, lambda sign: sign.isalnum() or _is_mark(sign)) if is_word)
    return [word for word in words if any(map(_is_mark, word))]


def _is_mark(character: str) -> bool:
    is_emoji_style = character in "\ufe0e\ufe0f"
    return unicodedata.category(character)[0] == "M" and not is_emoji_style


def _is_pictograph(character: str) -> bool:
    if character in _NAMED_SIGNS:
        return False
    return character in _MARKS or unicodedata.category(character) in _PICTOGRAPH_CATEGORIES


def _sign_with_operands(text: str, match: re.Match[str]) -> str:
    """A sign; if it is not commutative, with its operands: a - b is not b - a."""
    sign = match[0].strip()
    text_before = text[max(0, match.start() - _MAX_OPERAND_CHARS) : match.start()] + match[0][: -len(sign)]
    left, right = _LEFT_OPERAND.search(text_before), _RIGHT_OPERAND.match(text, match.end())
    if sign not in _NON_COMMUTATIVE or not left or not right or bool(left[2]) != bool(right[1]):
        return sign
    return f"{left[1]}{sign}{right[2]}".lower()
