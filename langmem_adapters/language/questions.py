"""What a message asks, apart from what else it says: people greet, thank, and tell why they ask."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from functools import lru_cache

from langmem_adapters.language.analysis import words_of
from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.language.foreign_stop_words import (
    FOREIGN_QUESTION_OPENING,
    FOREIGN_QUESTION_WORDS,
    FOREIGN_REFERRING_PATTERN,
    FOREIGN_REFERRING_WORDS,
    foreign_stop_words,
)
from langmem_adapters.language.lists import word_set

# How one greets and thanks, and how one says that one asks, in English, German, French, Spanish, Italian, Portuguese
# and Dutch.
_GREETINGS = (
    r"hello|hey|hi|ok|okay|please|thx|thanks(?: a lot| so much)?|thank you(?: (?:so|very) much)?"
    r"|hallo|bitte|danke|bonjour|salut|merci|s['\u2019]il (?:te|vous) plaît|hola|gracias|por favor"
    r"|ciao|grazie|per favore|olá|obrigad[ao]|hoi|bedankt|alsjeblieft|alstublieft"
)
_ASKING = (
    r"(?:can|could|will|would) you (?:please )?(?:remind|tell) me|do you (?:still )?(?:know|recall|remember)"
    r"|(?:remind|tell) me(?= (?:how|wh\w+)\b)|let me know"
    r"|i (?:am wondering|was wondering|wonder|want to know|would like to know)|i['\u2019]d like to know"
    r"|(?:weißt du|wissen sie)(?: noch)?|sag(?:en sie)? mir"
    r"|(?:(?:kannst|könntest) du|(?:können|könnten) sie) mir (?:bitte )?sagen"
    r"|dis-moi|tu te souviens|(?:peux|pourrais)-tu me (?:dire|rappeler)"
    r"|dime|(?:puedes|podrías) (?:decirme|recordarme)|dimmi|(?:puoi|potresti) (?:dirmi|ricordarmi)"
    r"|diga-me|me diga|pode me dizer|weet je(?: nog)?|(?:kun|kan) je me (?:vertellen|zeggen)"
)
_TELL_ME = r"(?:^|[.!?:,\n]) *(?:please )?(?:remind|tell) me\b"
_FRAMING_PATTERN = re.compile(rf"\b(?:{_GREETINGS}|{_ASKING})\b|{_TELL_ME}", re.IGNORECASE)
# A question without its mark has its verb before its subject ("where did he go"), begins with "who" as a sentence, or
# follows "tell me" or the like.
# What tells has other clauses: "the man who sold it", "when I came", "I know what he did".
_VERBS = "am|are|can|could|did|do|does|had|has|have|is|may|might|must|should|was|were|will|would"
_NO_SUBJECT = r"(?!(?:a|an|and|he|her|his|i|it|its|my|our|she|that|the|their|they|this|to|we|you|your)\b)\w+"
_QUESTION_WORDS = sorted({*FOREIGN_QUESTION_WORDS, *"how what when where whether which who whom whose why".split()})
_OPENING_PATTERN = re.compile(
    rf"(?:\b(?:{_ASKING})\b|{_TELL_ME})\W+(?=(?:{'|'.join(_QUESTION_WORDS)})\b)"
    rf"|(?=\b(?:(?:what|when|where|why|how|whom)(?:['\u2019]?s| (?:(?:again|else|exactly) )?(?:{_VERBS}|about))"
    rf"|(?:what|which|whose|how)(?: {_NO_SUBJECT}){{1,3}} (?:{_VERBS})"
    r"|how many|(?:what|which) (?:kind|sort|type)s? of|who (?:did|do|does)"
    rf"|do you (?:still )?(?:know|recall|remember)|{FOREIGN_QUESTION_OPENING})\b|\A\s*(?-i:[Ww]ho)\b)",
    re.IGNORECASE,
)
_MAX_SENTENCE_WORDS = 16  # of one that says nothing but what it asks
_CLAUSE_PATTERN = re.compile(r"\s*\S{1,64}(?:\s+\S{1,64}){0,11}")  # 12 words
# Words that may refer to what was said before.
_REFERRING_WORDS = word_set("he him it she that them then there these they this those")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_CLOSING_CHARS = " \n\t\"'\u2019\u201d\u00bb)]*_!"  # that may follow a question mark
_SENTENCE_END_PATTERN = re.compile(
    r"(?<=[!?\u061f])(?=\s)|(?<=[\n\u3002\uff01\uff1f])"  # the marks of Chinese need no space
    r"|(?<=\w{3}\.)(?<!\b[A-Z][a-z]{2}\.)(?<!\b[A-Z][a-z]{3}\.)(?=\s)"  # but not after "Dr." or "Prof."
)
# What is quoted, or code: others ask there.
_PASTED_PATTERN = re.compile(r"(^```[\s\S]*?(?:^```|\Z)|^>.*\n?)", re.MULTILINE)
_MAX_QUESTIONS = 4  # that are searched for one by one
_MIN_OWN_WORDS = 2  # of a question that needs no other to be understood
_UNSPACED_PATTERN = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # Thai, Lao, kana and Han
_UNSPACED_WORD_CHARS = 3  # where words have no spaces between them
_MIN_SHARE_ASKED = 0.4  # of a text whose questions need no more weight
_MAX_REMEMBERED_CHARS = 2_000  # of a text whose asked part is remembered
_MAX_TEXTS, _MAX_SUBJECT_CHARS = 5, 500  # in which the subject of a conversation is looked for


def asked_part(text: str) -> str:
    """The questions in a text that also has other sentences; the text itself, if all are questions, or none.

    Without question marks, they are known by their words. Of a long sentence, only its clauses that ask count.

    >>> asked_part("I had coffee with Ben yesterday. Where is my bike? Thanks!").strip()
    'Where is my bike?'
    """
    # A search asks several times; a long text would take too much memory.
    return _asked_part(text) if len(text) <= _MAX_REMEMBERED_CHARS else _asked_part.__wrapped__(text)


@lru_cache(maxsize=64)
def _asked_part(text: str) -> str:
    sentences = _split_sentences(text)
    questions = list(filter(_is_question, sentences))
    if not questions:
        questions = list(filter(_opens_question, sentences))
        if len(questions) > _MAX_QUESTIONS:  # it tells rather than asks
            return text
    asked = [clause for question in questions for clause in _asked_clauses(question)]
    if not asked or asked == sentences:
        return text
    return " ".join(asked)


def with_question_in_front(text: str) -> str:
    """A text with its questions once more before it, if they are a small part and can be understood alone.

    An embedder then gives them more weight, and does not cut them off behind a long text.

    >>> with_question_in_front("We had coffee and cake, and met Ben at the lake. Where is my red bike? Thanks a lot!")
    'Where is my red bike? We had coffee and cake, and met Ben at the lake. Where is my red bike? Thanks a lot!'
    """
    asked = asked_part(text).strip()
    if _MIN_SHARE_ASKED * len(text) <= len(asked) or _own_words(asked)[0] < _MIN_OWN_WORDS:
        return text
    return f"{asked} {text}"


def split_framing(text: str) -> tuple[str, str]:
    """A text without the words with which one greets, thanks and says that one asks, and these words.

    >>> split_framing("Could you tell me what Ben told me? Thanks!")
    ('  what Ben told me?  !', 'Could you tell me Thanks')
    """
    framing = " ".join(_FRAMING_PATTERN.findall(text))
    return _FRAMING_PATTERN.sub(" ", text) if framing else text, framing


def separate_questions(text: str, subject: str = "") -> list[str]:
    r"""What a text asks, one by one: each question with all that is no question, and with what it may refer to.

    That is the question before it that needed no other, or else the ``subject`` of the conversation. It becomes a
    statement, which counts less.

    >>> separate_questions("Hi! Where is my red bike? Is it locked? When does Ben come home?")
    ['Hi!\nWhere is my red bike?', 'Hi!\nWhere is my red bike.\nIs it locked?', 'Hi!\nWhen does Ben come home?']
    """
    sentences = _split_sentences(text)
    questions = [sentence for sentence in sentences if _is_question(sentence)]
    asides = [sentence for sentence in sentences if not _is_question(sentence)]
    if subject and len(asides) == 1 and not questions:  # in small letters, without marks
        questions, asides = [f"{text}?"], []
    subject = "" if asides else _as_statement(subject)
    has_context = any(_own_words(aside)[0] for aside in asides)
    asked: list[list[str]] = []
    for question in questions:
        own_count, refers = _own_words(question)
        if own_count >= _MIN_OWN_WORDS or (own_count and not subject and not refers):
            asked.append([subject, question] if refers else [question])
            subject = subject if refers else _as_statement(question)
        elif subject and (own_count or not asked):
            asked.append([subject, question])
        elif has_context and not subject and (own_count or refers):
            asked.append([question])
        elif asked:  # "Do you know?"
            asked[-1].append(question)
        else:  # "How are you?"
            asides.append(_as_statement(question))
    if not asked or len(asked) > _MAX_QUESTIONS or asked == [questions]:
        return [text]
    return list(dict.fromkeys("\n".join(filter(None, map(str.strip, [*asides, *part]))) for part in asked))


def may_go_on(text: str) -> bool:
    """Whether a text may ask about the subject of the conversation before it: otherwise that need not be looked for.

    >>> may_go_on("And where is it?"), may_go_on("Where is my red bike? Is it locked?")
    (True, False)
    """
    own_count, refers = _own_words(next(iter(_split_sentences(text)), ""))
    return refers or own_count < _MIN_OWN_WORDS


def subject_of(texts: Iterable[str]) -> str:
    """The latest question in some texts, the latest first, that can be understood without those before it.

    A text that asks nothing counts as a whole.

    >>> subject_of(["Is it locked?", "Hi! Where is my red bike?"])
    'Where is my red bike?'
    """
    for text in itertools.islice(texts, _MAX_TEXTS):
        end = text[-_MAX_SUBJECT_CHARS:]
        for asked in reversed(list(filter(_is_question, _split_sentences(end))) or [end]):
            own_count, refers = _own_words(asked)
            if own_count >= _MIN_OWN_WORDS and not refers:
                return asked.strip()
    return ""


def _split_sentences(text: str) -> list[str]:
    """The sentences of a text; what is quoted or fenced counts as one."""
    parts = _PASTED_PATTERN.split(text)
    split_parts = [[part] if n % 2 else _SENTENCE_END_PATTERN.split(part) for n, part in enumerate(parts)]
    return [sentence for sentences in split_parts for sentence in sentences if sentence.strip()]


def _is_question(sentence: str) -> bool:
    return not _PASTED_PATTERN.match(sentence) and sentence.rstrip(_CLOSING_CHARS).endswith(_QUESTION_MARKS)


def _opens_question(sentence: str) -> bool:
    return not _PASTED_PATTERN.match(sentence) and _OPENING_PATTERN.search(sentence) is not None


def _asked_clauses(sentence: str) -> list[str]:
    """A sentence, or of a long one the clauses that begin as a question does: speech may be written without marks."""
    if len(sentence.split()) <= _MAX_SENTENCE_WORDS:
        return [sentence]
    openings = itertools.islice(_OPENING_PATTERN.finditer(sentence), _MAX_QUESTIONS + 1)
    clauses = [match[0] for opening in openings if (match := _CLAUSE_PATTERN.match(sentence, opening.end()))]
    return clauses if 0 < len(clauses) <= _MAX_QUESTIONS else [sentence]


def _own_words(question: str) -> tuple[int, bool]:
    """How many words say what a question is about, and whether it has any that may refer to what was said before."""
    text = split_framing(question)[0]
    words, foreign_words = set(words_of(text)), foreign_stop_words(question)
    min_count = 1 if text.isascii() else 2  # an English text too may have "café", a dash or an emoji
    is_english = not foreign_words and len(words & STOP_WORDS) >= min_count  # here "Ella" is a name
    referring_words = words & (_REFERRING_WORDS if is_english else _REFERRING_WORDS | FOREIGN_REFERRING_WORDS)
    refers = bool(referring_words) or FOREIGN_REFERRING_PATTERN.search(text) is not None
    return sum(map(_word_count, words - STOP_WORDS - referring_words - foreign_words)), refers


def _word_count(word: str) -> int:
    """How many words are in what has no space: about so many, where nobody writes any."""
    return len(word) // _UNSPACED_WORD_CHARS or 1 if _UNSPACED_PATTERN.search(word) else 1


def _as_statement(sentence: str) -> str:
    return sentence.rstrip(_CLOSING_CHARS + "".join(_QUESTION_MARKS)) + "." if _is_question(sentence) else sentence
