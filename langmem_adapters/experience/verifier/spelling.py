"""Normalise spelling: contractions, misspellings, numbers with scales, signs that stand for words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from decimal import Decimal

from langmem_adapters.experience.verifier.words import NUMBER_WORDS, UNITS
from langmem_adapters.language.dates import DAYS, MONTHS
from langmem_adapters.language.lists import base_forms


def _enable_or_disable(match: re.Match[str]) -> str:
    return f"{'enable' if match[2] == 'on' else 'disable'} {match[1]}"


_NO_OBLIGATION = re.compile(
    r"\b(?:not|no|never|nobody|none|nothing|neither|nor|without|hardly|only)\b|"
    r"\b(?:can|could|did|do|does|may|might|should|to|will|would)\b[^.?!,;]*$"
)


def _replace_have_to(match: re.Match[str]) -> str:
    """Replace "have to" by "must", but not after an auxiliary or a negation: "do not have to" is not "must not"."""
    return match[0] if _NO_OBLIGATION.search(match.string[: match.start()]) else "must"


_MONTHS = "|".join(MONTHS)
_SHORT_MONTHS = "jan|feb|apr|jun|jul|aug|sep|oct|nov|dec"
_DAY_OR_MONTH = "|".join((*DAYS, *MONTHS))
_PERIODS = "(?:second|minute|hour|day|week|month|year)s?"
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_TEENS = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_AFTER_ORDINALS = f"and|at|in|of|on|or|{_MONTHS}"
REPLACEMENTS: tuple[tuple[str, str | Callable[[re.Match[str]], str], str], ...] = (
    (r"\bwon'?t\b", "will not", "wont t"),
    (r"\bcan'?t\b|\bcannot\b", "can not", "cant cannot t"),
    (r"\bshan't\b", "shall not", "t"),
    (r"\bain't\b", "is not", "t"),
    (r"n't\b", " not", "t"),
    (r"\b(do|does|did|is|are|was|were|has|have|had|would|could|should)nt\b", r"\1 not",
     "dont doesnt didnt isnt arent wasnt werent hasnt havent hadnt wouldnt couldnt shouldnt"),
    (r"\b(what|who|where|how|when|why|that|there|it|he|she)'s\b", r"\1 is", "s"),
    (r"\blet's\b", "let us", "let"),
    (r"\b(what|who|where|how|when|why)s\b", r"\1 is", "whats whos wheres hows whens whys"),
    (r"'re\b", " are", "re"),
    (r"'ve\b", " have", "ve"),
    (r"'ll\b", " will", "ll"),
    (r"'d\b", " would", "d"),
    (r"\bi'?m\b", "i am", "im m"),
    (r"'s\b", "", "s"),
    (r"s'(?=\s)", "s", "s'"),
    (r"\bu\b", "you", "u"),
    (r"\bur\b", "your", "ur"),
    (r"\bgonna\b", "going to", "gonna"),
    (r"\bwanna\b", "want to", "wanna"),
    (r"\b(gim|lem)me\b", lambda match: {"gim": "give me", "lem": "let me"}[match[1]], "gimme lemme"),
    (r"(?<!\bin )(?<!\bwith )\br (?=you\b)", "are ", "r"),
    (r"\b(after|before|by|during|in|is|since|until|was) the year (?=[12]\d{3}\b)", r"\1 ", "year"),
    (r"\bin a single (?=(?:line|page|paragraph|sentence|step|word)\b)", "in one ", "single"),
    (rf"\bnot? more than (?=\d|(?:{_ONES}|{_TEENS}|{_TENS})\b)", "at most ", "more"),
    (rf"\bnot? (?:less|fewer) than (?=\d|(?:{_ONES}|{_TEENS}|{_TENS})\b)", "at least ", "less fewer"),
    (rf"(?<!\bfor )(?<!\bwithin )\b(?:in )?((?:\d+|an?|one|two|three) {_PERIODS}) from now\b", r"in \1", "now"),
    (r"\bw/o\b", "without", "o"),
    (r"\be-mail", "email", "e"),
    (r"\b(has|have|had) yet to\b", r"\1 not", "yet"),
    (r"\bnot yet (\w+)(?=[?.!]*$)", r"not \1 yet", "yet"),
    (r"\b(?:log|sign)[ -]?in\b", "login", "log sign signin"),
    (r"\b(?:log|sign)[ -]?(?:out|off)\b", "logout", "log sign signout"),
    (r"\b(?:turn|switch) on\b", "enable", "turn switch"),
    (r"\b(?:turn|switch) off\b", "disable", "turn switch"),
    (r"\b(?:turn|switch) ((?:(?:the|my|all|every) )?\w+(?: \w+){0,2}) (on|off)(?=[?.!, ]*$| at \d)", _enable_or_disable,
     "turn switch"),
    (r"\b(?:pros and cons|benefits and drawbacks)\b", "advantages and disadvantages", "cons drawbacks"),
    (r"\b(loop|iterate)(s|d|ing)? through\b", r"\1\2 over", "through"),
    (r"(?<!not )\bjust (?=(?:by|for|from|my|on|one|the|those|these|with|\d+|two|three|four|five|six)\b)", "only ",
     "just"),
    (r"\bjust (?=in (?!case\b|time\b))|(?<=\bwith )just ", "only ", "just"),
    (r"(^|[.?!] )((?:are|do|does|did|is|was|were) (?:(?:a|an|my|the|your) )?\w+ )just (?!about\b|as\b|like\b|now\b)",
     r"\1\2only ", "just"),
    (r"\b(say [\"']?)thank you\b", r"\1thanks", "thank"),
    (r"\bwi-fi\b", "wifi", "fi"),
    (r"\bcapital city of\b", "capital of", "capital"),
    (r"\b((?:check|decide|determine|find|know|see|tell|test|verify|sure)(?:d|s|ing)?(?: out| me| us)?) whether(?! or )",
     r"\1 if", "whether"),
    (r"\b((?:convert|transform|translate)\b.{0,80}?) into\b", r"\1 to", "into"),
    (r"\b(set|back)[ -]up\b", r"\1up", "set back"),
    (r"\bget rid of\b", "remove", "rid"),
    (r"\bfree of charge\b", "free", "charge"),
    (r"\bper favore\b|\bpor favor\b|\bs'il (?:te|vous) pla[iî]t\b", "please", "favore favor il"),
    (r"\bget in touch with\b", "contact", "touch"),
    (r"\bhow come\b", "why", "come"),
    (r"\b(how|what|when|where|who|why) the (?:fuck|heck|hell)\b", r"\1", "fuck heck hell"),
    (r"\bin order to\b", "to", "order"),
    (r"\b(all|any|anybody|anyone|anything|everybody|everyone|everything|nobody|none|nothing) but\b", r"\1 except",
     "but"),
    (r"\b(?:in|at) (?=(?:what|which) (?:time|year|month|day)\b)", "", "time year month day"),
    (r"\bwith no\b(?! (?:fewer|less|longer|more|one)\b)|\bwithout any\b", "without", "no any"),
    (r"\bthe following (?!(?:day|month|morning|night|week|year)s?\b)(?=\w)", "this ", "following"),
    (r"\bwould you (?=(?:advise|recommend|suggest)\b)", "do you ", "would"),
    (r"(^|[.?!,;] )(do|does|did) (\w+) need to\b", r"\1\2 \3 have to", "need"),
    (r"\b(?:has|have) to\b", _replace_have_to, "has have"),
    (r"\b(i|we|you|he|she|they) would like to\b", r"\1 want to", "like"),
    (r"\b((?:stop|prevent)(?:s|ped|ed|ping|ing)? (?:\w+ ){1,4}?)from (?=\w+ing\b)", r"\1",
     "stop stops stopped stopping stoped stoping prevent prevents prevented preventing preventped preventping"),
    (r"\bright now\b", "now", "right"),
    (r"\bone[ -](?=(?:second|minute|hour|day|week|month|year|cup|percent|metre|meter|mile|litre|liter)\b)", "1 ",
     "one"),
    (r"\bone (?=(?:and|or|to) (?:a half|\d+|both|two|three|four|five|six|seven|eight|nine|ten)\b)", "1 ", "one"),
    (r"\beven though\b", "although", "though"),
    (r"\bokay\b", "ok", "okay"),
    (r"\bas well(?! as\b)", "too", "well"),
    (r"\b(?:around|approx\.?|approximately|circa|roughly) (?=\d)", "about ",
     "around approx approximately circa roughly"),
    (rf"\b(?:{_SHORT_MONTHS})\b\.?(?= \d)|(?<=\d )(?:{_SHORT_MONTHS})\b\.?", lambda match: UNITS[match[0].rstrip(".")],
     _SHORT_MONTHS.replace("|", " ")),
    (rf"\bbetween (\d[\d.:]*|{_DAY_OR_MONTH}) and (?=(?:\d[\d.:]*|{_DAY_OR_MONTH})\b)", r"from \1 to ", "between"),
    (rf"\b({_DAY_OR_MONTH}) through (?=(?:{_DAY_OR_MONTH})\b)", r"\1 to ", "through"),
    (rf"\b1st (?!(?:{_AFTER_ORDINALS})\b)(?=[a-z])", "first ", "1st"),
    (rf"\b2nd (?!(?:{_AFTER_ORDINALS})\b)(?=[a-z])", "second ", "2nd"),
    (rf"\b({_MONTHS}) (\d\d?)(?:st|nd|rd|th)?(?![\w:]|[.,]\d)", r"\2 \1", _MONTHS.replace("|", " ")),
    (r"(?<!\w)([$€£¥₹]) ?(\d[\d.,]*(?: ?(?:k|mn|bn|million|billion))?\b)", r"\2\1", "$ € £ ¥ ₹"),
    (r"([+=*])(?:(?<=[a-z\d)].)(?=\d)|(?<=\d.)(?=[a-z]))", r" \1 ", "+ = *"),
    (r"\bper (?=(?:second|minute|hour|day|night|week|month|year|person)\b)", "a ", "per"),
)  # fmt: skip
"""A pattern, its replacement, and hints of which a matching text has one: tokens (don't has two), or signs."""

MISSPELLINGS = base_forms("""accommodation accomodation, account acount accout, address adress addres,
    appointment appointement apointment, argument arguement, available availible availble avaliable,
    because becuase becasue beacuse, beginning begining, believe beleive, business buisness bussiness busines,
    calendar calender, cancel cancle, capital captial, certificate certficate, completely completly, computer computor,
    database datbase, definitely definately definitly, definition definiton, delivery delivary delievery,
    different diffrent diferent, difference diffrence, directory directry, disappear dissapear, email emial,
    embarrassing embarassing, environment enviroment, example exmaple, exercise excercise, existence existance,
    experience experiance, favorite favourate, february febuary, finally finaly, foreign foriegn, friend freind,
    function funtion fucntion, government goverment, grammar grammer, guarantee garantee gaurantee,
    height heigth hieght, immediately immediatly, independent independant, insurance insurence, interest intrest,
    internet interent, invoice invocie, january janurary, knowledge knowlege, language langauge, library libary,
    license lisence, maintenance maintenence maintainance, maximum maximun, necessary neccessary necesary,
    nearest nearset, occurred occured, occurrence occurence, package pacakge, parcel parcle,
    password pasword passowrd passwrod, payment payement paymnet, permanent permanant, phone phoen, possible posible,
    privilege privelege, probably probaly, problem probelm, pronunciation pronounciation, publicly publically,
    python pyhton, question quesiton, receipt reciept, receive recieve, received recieved, recommend recomend reccomend,
    refund refudn, restaurant restaraunt resturant restaurent, restaurants restaraunts resturants, schedule shedule,
    separate seperate, several severel, should shoud shuld, similar similiar, string stirng,
    subscription subscripton subsciption, successful succesful sucessful, symptom symtom, symptoms symtoms,
    temperature temprature, the teh, their thier, tomorrow tommorow tommorrow tomorow, transfer tranfer, truly truely,
    until untill, vacuum vaccum vacume, warranty waranty, website webiste, wednesday wensday wednsday, weird wierd,
    what waht, which wich whcih, while whilst, with wiht, how hwo, writing writting, brulee brûlée, cafe café,
    cafes cafés, cliche cliché, creme crème, crepe crêpe, crepes crêpes, facade façade, jalapeno jalapeño,
    jalapenos jalapeños, naive naïve, pinata piñata, pokemon pokémon, puree purée""")
"""The word meant, by common misspelling or accented form; none of these is another word."""

MULTIPLIERS = {
    "k": 1_000, "hundred": 100, "thousand": 1_000, "lac": 100_000, "lakh": 100_000, "mn": 1_000_000,
    "million": 1_000_000, "crore": 10_000_000, "bn": 10**9, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_COMPILED_REPLACEMENTS = [
    (
        re.compile(pattern),
        replacement,
        frozenset(hint for hint in hints.split() if hint.isalnum()),
        [hint for hint in hints.split() if not hint.isalnum()],
    )
    for pattern, replacement, hints in REPLACEMENTS
]
_TOKEN = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
GROUPED_DIGITS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,])")  # 10,000 and 1,00,000, but not 1,50
_ORDINAL_SUFFIX = re.compile(r"(?:st|nd|rd|th)\b(?<=\d..)")
_LEADING_POINT = re.compile(r"\.(?<![\w.].)(?=\d)")
_SCALED_NUMBER = re.compile(rf"(?<![\w.])(\d+(?:\.\d+)?)\s*({'|'.join(MULTIPLIERS)})s?\b", re.ASCII)
_NUMBER_PARTS = frozenset((*_TENS.split("|"), "hundred", "thousand", "million", "billion"))
_SPELT_NUMBER = re.compile(
    rf"\b(?:({_ONES}|{_TEENS}|{_TENS}) (hundred|thousand|million|billion)\b|({_TENS})[ -]({_ONES})\b)"
)
_SIGN_NAMES = base_forms("percent %, permille ‰, dollar $, euro €, pound £, yen ¥, rupee ₹, degrees °")
_SIGN_TRANSLATION = {ord(sign): f" {name} " for sign, name in _SIGN_NAMES.items()}


def normalize_spelling(text: str) -> str:
    """A text in lower case, in one spelling.

    >>> normalize_spelling("what's 5k in e-mail")
    'what is 5000 in email'
    """
    tokens = {*_TOKEN.findall(text)}
    for pattern, replacement, hint_words, hint_signs in _COMPILED_REPLACEMENTS:
        if hint_words.isdisjoint(tokens) and not (hint_signs and any(hint in text for hint in hint_signs)):
            continue
        replaced = pattern.sub(replacement, text)
        if replaced != text:
            text, tokens = replaced, {*_TOKEN.findall(replaced)}
    return _normalize_numbers(text, tokens)


def _normalize_numbers(text: str, tokens: Collection[str]) -> str:
    if not _NUMBER_PARTS.isdisjoint(tokens):
        text = _SPELT_NUMBER.sub(_spelt_to_digits, text)
    text = text.translate(_SIGN_TRANSLATION)
    if not _DIGIT.search(text):
        return text
    text = GROUPED_DIGITS.sub(lambda match: match[0].replace(",", ""), text)
    text = _LEADING_POINT.sub("0.", _ORDINAL_SUFFIX.sub("", text))  # .5
    return _SCALED_NUMBER.sub(_scaled_to_digits, text)


def _spelt_to_digits(match: re.Match[str]) -> str:
    """Replace "two thousand" or "twenty-five" by figures."""
    if match[1]:
        return str(int(NUMBER_WORDS.get(match[1], "1")) * MULTIPLIERS[match[2]])
    return str(int(NUMBER_WORDS[match[3]]) + int(NUMBER_WORDS.get(match[4], "1")))


def _scaled_to_digits(match: re.Match[str]) -> str:
    value = Decimal(match[1]) * MULTIPLIERS[match[2]]
    return str(int(value)) if value == int(value) else str(value)
