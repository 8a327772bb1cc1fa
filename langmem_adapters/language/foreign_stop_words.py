"""Stop words of large languages other than English: a query in one of them is searched without them.

Documents keep them: here they only identify a query's language. "war", "die" and "man" are also English words, so a
text must have more words of one language than of English, and at least two, unless it begins with a question word.
"""

from __future__ import annotations

import re

from langmem_adapters.language.english import STOP_WORDS
from langmem_adapters.language.lists import word_set

# For each language: question words, verbs, and the rest.
_LANGUAGES = (
    """wer wen wem wessen wann warum wieso weshalb wo woher wohin welche welchen welchem welcher welches wie wieviel |
    ist sind war waren hat haben hatte hast habe kann können konnte wird wurde wurden | was bin soll sollte will
    wollte muss musste darf durfte der die das den dem des ein eine einen einem einer eines kein keine keinen und
    oder aber auch noch schon nicht sich ich du er sie es wir ihr mich mir dich dir uns euch ihn ihm ihnen mein
    meine meinen meinem meiner dein deine deinen sein seine seinen ihre ihren unser unsere unseren in im an am auf
    aus bei beim mit nach von vom vor zu zum zur für über unter um bis durch gegen ohne als wenn ob dass man gibt
    viel viele denn doch""",
    """qui quand pourquoi combien comment quel quelle quels quelles où quoi lequel laquelle | est sont était a as ont
    avait | que qu suis es ai le la les l un une des du de d au aux et ou mais pas ne n plus ce cet cette ces ça c
    il elle ils elles je j tu nous vous on me m te t se s mon ma mes ton ta tes son sa ses notre nos votre vos leur
    leurs à dans en sur sous avec sans pour par chez y si""",
    """quién quiénes cuándo cuánto cuánta cuántos cuántas cuál cuáles dónde adónde cómo qué por | es son era fue está
    están ha han | que quien cuando cuanto cual donde como he hay el la los las lo un una unos unas de del al a y o
    pero no ni se me te nos le les mi mis tu tus su sus nuestro nuestra yo él ella ellos en con sin para sobre entre
    hasta desde si más muy ya este esta ese esa""",
    """chi quando perché quale quali quanto quanta quanti quante cosa | è sono era ha hanno ho | dove come che il lo la
    i gli le l un uno una di del della dei delle dello da dal dalla a al alla ai in nel nella su sul con per tra fra
    e o ma non si mi ti ci vi io tu lui lei noi voi loro mio mia tuo tua suo sua nostro nostra se più anche""",
    """quem quando quanto quanta quantos quantas qual quais onde porquê | é são era foi está estão tem | que como têm o
    a os as um uma de do da dos das em no na nos nas ao à por para com sem e ou mas não se me te lhe eu tu ele ela
    nós eles meu minha teu tua seu sua nosso nossa mais muito já este esta""",
    """wie wat waar wanneer waarom hoe hoeveel welk welke | is zijn was waren heeft heb hebben had kan | kunnen moet
    wil de het een en of maar niet geen ik jij je hij zij ze we wij jullie mijn jouw haar ons onze hun in op aan van
    voor met naar uit bij door over om te dat die dit deze er ook nog al als dan""",
)
FOREIGN_REFERRING_WORDS = word_set("""
    er sie ihn ihm ihr ihnen ihre ihren ihrem ihrer sein seine seinen seinem seiner dort dorthin daher damals davon
    dafür damit il elle ils elles lui leur leurs son ses ça cela celui celle él ella ellos ellas eso ese esa allí allá
    su sus lei loro quello quella suo sua suoi ele ela eles elas isso lá dele dela deles delas hij zij haar hun daar dat
    он она оно они его ее её их ему ей им него нее неё них нему ней ним там туда оттуда
    onu ona onun onlar onları onların onda ondan bunu bunun orada oraya oradan
    그 그녀 그는 그가 그를 그의 그녀는 그녀가 그녀를 그녀의 그건 그것 거기 거기서 거기로 거기에
    هناك ذلك تلك عنه عنها له لها فيه فيها به بها منه منها عنده عندها عليه عليها
    वह वे उस उसे उसका उसकी उसके उसने उसको उससे उनका उनकी उनके उन्हें उन्होंने वहाँ वहां
""")  # noqa: RUF001 - Cyrillic and Turkish letters
"""Words of these languages, and of Russian, Turkish, Korean, Arabic and Hindi, that may refer to what was said before.

Those that are often something else in another of them are left out: "es", "die", "o", or mean "is": "هي".
"""
FOREIGN_REFERRING_PATTERN = re.compile(
    r"(?<!其)他|[她它]|彼|それ(?!では|でも|から|とも|なら)|そこ|その(?![、,])|(?<!ภู)เขา|เธอ|นั่น|"
    r"\b(?!\u0627\u0644)[\u0620-\u064a]{3,}(?:\u0647\u0627?|\u0647\u0645)\b"  # no word with the article
)
"""Those of Chinese, Japanese and Thai, which put no spaces between words, and what Arabic joins to the end of one."""
_WORD_PATTERN = re.compile(r"[^\W\d_]+")


_WORD_LISTS = [[*map(str.split, text.split("|"))] for text in _LANGUAGES]
_LANGUAGE_WORDS = [(frozenset(words), frozenset((*words, *verbs, *rest))) for words, verbs, rest in _WORD_LISTS]
FOREIGN_QUESTION_WORDS = frozenset[str]().union(*[words for words, _ in _LANGUAGE_WORDS])
"""The question words of all these languages."""
_OPENINGS = (  # "hoe" is an English word too, and "qui" mostly begins a relative clause
    rf"(?:{'|'.join([word for word in words if word not in ('hoe', 'qui')])}) (?:{'|'.join(verbs)})"
    for words, verbs, _ in _WORD_LISTS
)
FOREIGN_QUESTION_OPENING = f"(?:{'|'.join(_OPENINGS)})"
"""The pattern of a question word of one of these languages with a verb after it."""


def foreign_stop_words(text: str) -> frozenset[str]:
    """The stop words of a text in its language; empty for English and for unknown languages.

    >>> sorted(foreign_stop_words("Wie teuer war der Tierarzt?"))
    ['der', 'war', 'wie']
    """
    words = _WORD_PATTERN.findall(text.casefold())
    unique_words = frozenset(words)
    question_words, stop_words = max(_LANGUAGE_WORDS, key=lambda pair: len(unique_words & pair[1]))
    matches = unique_words & stop_words
    is_certain = len(matches) > 1 or question_words.issuperset(words[:1])
    return matches if matches and is_certain and len(matches) > len(unique_words & STOP_WORDS) else frozenset()
