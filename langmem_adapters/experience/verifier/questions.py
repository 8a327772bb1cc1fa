"""What the verifier knows of questions: their kinds in English, and what asks in other languages. Data only."""

from __future__ import annotations

__all__ = ["FRAMES", "OPENING", "QUESTION_PARTS", "QUESTION_WORDS", "WORDINGS"]

_listed = str.split

_HOW_TO = (
    r"^(?:so |and |hi |hello )?(?:can you |could you |would you )?(?:tell me |explain |show me )?"
    r"(?:how (?:do|can|should|could|would|will|to|does|must|might) |how i can |how is it possible|"
    r"wh(?:at|ich) (?:is|are|would be|will be) (?:the |some |a )?(?:\w+ ){0,2}"
    r"(?:ways?|methods?|steps?|tips?|procedures?|process|techniques?)\b|"
    r"what (?:should|can|could|must|do) (?:i|one|we|you) do to|(?:is|are) there (?:any|a) ways?|ways? (?:to|of) )"
)

FRAMES = (
    ("how to", _HOW_TO),
    ("why", r"\bwhy\b|\breasons? (?:for|why|behind|that|is)\b|\bhow come\b|\bwhat(?: is| are)? (?:makes|causes?)\b"),
    ("how many", r"\bhow (?:many|much)\b"),
    ("how long", r"\bhow (?:long|old|far|often|big|tall|soon|fast|high|deep)\b"),
    ("when", r"\bwhen\b|\bwhat (?:time|year|date|day)\b"),
    ("where", r"\bwhere\b"),
    ("who", r"\bwho\b|\bwhom\b|\bwhose\b"),
    ("how", r"\bhow\b"),
    ("what", r"\bwhat\b|\bwhich\b"),
    ("whether", r"^(?:is|are|am|do|does|did|can|could|will|would|should|has|have|had|was|were|may|must)\b"),
)
"""Kinds of questions, by the wording that begins or holds them."""

OPENING = (
    r"(?:good (?:morning|afternoon|evening)\b(?! to)[\s,.!:-]*)?"
    r"(?:(?:(?:please|pls|plz|kindly|so|ok|okay|well|hello|hi|hey|excuse me|sorry)\b[\s,.!:-]*)*"
    r"(?:(?:(?:can|could|will|would) (?:you|anyone|someone) (?:please |kindly )?)?"
    r"(?:tell|explain|show)(?: to)?(?: me| us)?|"
    r"(?:do you(?! know how to)|does anyone|does anybody|does someone) (?:happen to )?know|"
    r"i (?:would like|want|need) to know|i (?:was|am) (?:just )?wondering|any idea),? (?=how |wh(?!ether)))?"
)
"""What a question may be asked with, and asks nothing itself: "Good morning", "could you please tell me"."""

_A_AND_B = "what is the difference between \\1 and \\2"
WORDINGS = (
    (
        r"how (?:do|are) (.+?) and (.+?) (?:differ|different)(?: from (?:each other|one another))?(?=[?.! ]*$)",
        _A_AND_B,
    ),
    (r"how (?:do|does) ((?:(?! and ).)+) differ from ((?:(?! and ).)+?)(?=[?.! ]*$)", _A_AND_B),
    (r"what (?:do|does) (.+?) mean(?=[?.! ]*$)", r"what is the meaning of \1"),
    (r"what (?:is|are) the causes? of ", "what causes "),
    (r"what (?:is|are) the reasons? (?:that|why) ", "why "),
    (r"what is the price of (.+?)(?=[?.! ]*$)", r"how much does \1 cost"),
    (r"what is the age of ", "how old is "),
    (r"what is the height of ", "how tall is "),
    (r"what is the distance (?:between (.+?) and|from (.+?) to) ", r"how far is \1\2 from "),
    (r"is there (?:a|any) way to ", "how can i "),
)
"""Questions that are asked in several ways, and the one that stands for all: patterns of a text in one spelling."""

QUESTION_WORDS = frozenset(
    _listed(
        """wie wo wer wen wem wessen was wann warum wieso weshalb woher wohin welche welcher welches welchen welchem
        wieviel kann kannst können könnt könnte könnten darf dürfen muss müssen soll sollte ist sind hat hast haben
        habt gibt comment où qui quand pourquoi combien quel quelle quels quelles quoi est puis peut peux pouvez
        cómo dónde quién quiénes cuándo cuál cuáles cuánto cuánta cuántos cuántas qué adónde come dove chi quando
        perché quale quali quanto quanta quanti quante che onde quem qual quais quantos quantas hoe waar wanneer wat
        waarom welk welke wie hoeveel kan mag is zijn heb heeft как что где когда почему зачем кто сколько какой
        какая какое какие куда откуда чей jak gdzie kiedy dlaczego kto ile co czy hur var när varför vem vad hvor
        hvordan hvornår hvorfor hvem hvad hva når nasıl nerede neden niçin kim kaç hangi bagaimana dimana kapan
        mengapa siapa berapa apa apakah كيف أين متى لماذا من ماذا هل"""  # noqa: RUF001 - Turkish
    )
)
"""Words of other languages that a question begins with, and a statement hardly ever."""

QUESTION_PARTS = tuple(
    _listed(
        """吗 嗎 呢 什么 什麼 怎 哪 谁 誰 多少 几 幾 何 ますか ですか ましたか ませんか どう どこ どの いつ なぜ 어떻게
        왜 어디 언제 누구 무엇 몇 얼마 까요 나요 कैसे कहाँ कब क्यों कौन क्या कितन อย่างไร อะไร ไหม ทำไม
        ที่ไหน เมื่อไ ใคร เท่าไ nào gì đâu nhiêu"""
    )
)
"""Parts of a text that tell so wherever they stand, in languages that leave them in their place."""
