"""Questions: their kinds in English, and question words of other languages. Data only."""

from __future__ import annotations

from langmem_adapters.language.lists import word_set

_CAN_YOU = r"(?:(?:can|could|will|would) you (?:please |kindly )?)?"
_I_WONDER = r"i (?:would like|want|need) to (?:know|ask)|i (?:(?:was|am) (?:just )?wondering|wonder)"
_HOW_TO = (
    r"^(?:so |and |hi |hello )?(?:can you |could you |would you )?(?:tell me |explain |show me )?"
    r"(?:how (?:do|can|should|could|would|will|to|does|must|might) |how i can |how is it possible|"
    r"wh(?:at|ich) (?:is|are|would be|will be) (?:the |some |a )?(?:\w+ ){0,2}"
    r"(?:ways?|methods?|steps?|tips?|procedures?|process|techniques?)\b|"
    r"what (?:should|can|could|must|do) (?:i|one|we|you) do to|(?:is|are) there (?:any|a) ways?|ways? (?:to|of) )"
)

QUESTION_FRAMES = (
    ("how to", _HOW_TO),
    (
        "why",
        r"\bwhy\b|\breasons? (?:for|why|behind|that|is)\b|\bwhat(?: is| are)? (?:mak|caus)(?:es?|ing)\b",
    ),
    ("how many", r"\bhow (?:many|much)\b"),
    ("how long", r"\bhow (?:long|old|far|often|big|tall|soon|fast|high|deep)\b"),
    ("when", r"\bwhen\b(?!.*, (?:how|what|where|which|who|why)\b)|\bwhat (?:time|year|date|day)\b"),
    ("where", r"\bwhere\b"),
    ("who", r"\bwho\b|\bwhom\b|\bwhose\b"),
    ("how", r"\bhow\b"),
    ("what", r"\bwhat\b|\bwhich\b"),
    ("whether", r"^(?:is|are|am|do|does|did|can|could|will|would|should|has|have|had|was|were|may|must)\b"),
)
"""The kinds of questions, with the pattern of each; some must be at the beginning."""

OPENING_PATTERN = (
    r"(?:good (?:morning|afternoon|evening)\b(?! to)[\s,.!:-]*)?"
    r"(?:(?:please|pls|plz|kindly|so|ok|okay|well|basically|seriously|omg|ugh|hello|hi|hey|excuse me|sorry)"
    r"(?: there)?[,.!:-]+\s+|"
    r"请问,?\s*|(?:quick|short|just a(?: quick)?) question[,.!:-]+\s+|just wondering,?\s+|"
    r"(?:(?:um+|uh+|erm|hmm+|ok|okay|so(?: like)?|well|hey|oh)[\s,.!-]+)+(?=how |wh(?!ether)))*"
    r"(?:(?:(?:please|pls|plz|kindly|so|ok|okay|well|hello|hi|hey|excuse me|sorry)\b[\s,.!:-]*)*"
    r"(?:(?:(?:can|could|will|would) (?:you|anyone|someone) (?:please |kindly |just )?)?"
    r"(?:tell|explain|show)(?: to)?(?: me| us)?|"
    r"(?:do you(?! know how to)|does anyone|does anybody|does someone) (?:happen to )?know|"
    r"(?:would|do) you mind (?:telling|explaining to|showing) me|i was hoping you could tell me|"
    rf"{_I_WONDER}|help me understand|any idea)[,:]? (?=how |wh(?!ether)))?"
)
"""Openings of a question that do not change it: "Good morning", "could you please tell me"."""

WHETHER_PATTERN = (
    rf"(?:{_I_WONDER}|do you (?:happen to )?know|does (?:anyone|anybody) know|any idea) (?:if|whether) "
    r"(?=[^,]*$)(?!.* or not\b)"
)
"""Openings of a question answered by yes or no; not "tell me if", which may ask to be told later."""

REQUEST_PATTERN = (
    rf"(?:{_CAN_YOU}|i (?:would like|want|need) you to |please )"
    r"(?:help me (?=(?:find|write|draft)\b))?"
    r"(calculate|compare|describe|draft|explain|find(?= me )|give(?= me )|list|plan|proofread|recommend|rewrite|"
    r"suggest|summari[sz]e|translate|write) "
    r"(?:me )?"
)
"""Openings that ask for a text, as a question or an order; the group is the verb."""

TELL_ME_PATTERN = (
    rf"^(?:please |kindly )?{_CAN_YOU}tell me "
    r"(?=(?:the|your|my|our) \w+(?: \w+){0,5}[?.! ]*$)"
)
"""Openings that ask for something by name: "please tell me my balance", for "what is my balance"."""

_A_AND_B = "what is the difference between \\1 and \\2"
_JUDGEMENTS = "dangerous|difficult|easy|hard|healthy|illegal|legal|safe"
_LANGUAGE = (
    r"(?:bash|c|c\+\+|c#|excel|go|java|javascript|kotlin|matlab|perl|php|postgresql|powershell|python|r|ruby|rust|scala|"
    r"shell|sql|swift|typescript)"
)
_CODE = rf"(?:(?:{_LANGUAGE} )?(?:function|query|regex)|{_LANGUAGE} (?:class|program|script))\b"
_END = r"(?=[?.! ]*$)"
WORDING_REPLACEMENTS = (
    (r"how (?:do|are) (.+?) and (.+?) (?:differ|different)(?: from (?:each other|one another))?" + _END, _A_AND_B),
    (r"how (?:do|does) ((?:(?! and ).)+) differ from ((?:(?! and ).)+?)" + _END, _A_AND_B),
    (r"(.{1,60}?) (?:vs\.?|versus) (.+?) difference" + _END, _A_AND_B),
    (r"what (?:do|does) (.+?) mean" + _END, r"what is the meaning of \1"),
    (r"what is (.+?) short for" + _END, r"what does \1 stand for"),
    (r"what (?:is|are) the causes? of ", "what causes "),
    (r"what (?:is|are) (.+?) caused by" + _END, r"what causes \1"),
    (r"what (?:is|are) the reasons? (?:(?:that|why) |(?=(?:the|a|an|my|i|it|we|they|you|he|she) ))", "why "),
    (r"what is the (?:price of|cost of (?=an? )) ?(.+?)" + _END, r"how much does \1 cost"),
    (r"how much is ((?:a|an) (?:\w+ ){0,2}(?:card|licence|license|membership|pass|subscription|ticket))" + _END,
     r"how much does \1 cost"),
    (r"how much time (do|does|did|will) ", r"how long \1 "),
    (r"how heavy (?:is|are) (.+?)" + _END, r"how much does \1 weigh"),
    (r"what is the weight of (.+?)" + _END, r"how much does \1 weigh"),
    (r"what (is|was) the age of ", r"how old \1 "),
    (r"what (is|was) the depth of ", r"how deep \1 "),
    (r"what (is|was) the height of ", r"how tall \1 "),
    (r"what (is|was) the length of ", r"how long \1 "),
    (r"what (is|was) the size of ", r"how big \1 "),
    (r"what (is|was) the width of ", r"how wide \1 "),
    (r"what is the population of (.+?)" + _END, r"how many people live in \1"),
    (r"what is the distance (?:between (.+?) and|from (.+?) to) ", r"how far is \1\2 from "),
    (r"how far is it from (.+?) to ", r"how far is \1 from "),
    (r"(?:what|when|which) is the best (?:time|moment) to ", "when should i "),
    (r"(?:what|when|which) is the worst (?:time|moment) to ", "when should i not "),
    (r"what (?:is|are) the (?:procedure|process|steps) to ", "how do i "),
    (r"is there (?:a|any) way to ", "how can i "),
    (r"what (?:do|must) (i|we) (?:must|(?:have|need) to) do to ", r"how do \1 "),
    (r"what is (?!(?:the|this|that|its|my|our|your|his|her|their) price)(.+?) price" + _END, r"how much does \1 cost"),
    (r"do you have (any (?:advice|ideas|recommendations|suggestions|tips)) ", r"\1 "),
    (r"is it possible (?:for me )?to ", "can i "),
    (r"(?:do|does) (i|we|one) (?:have|need) to ", r"must \1 "),
    (r"where (is|are|was|were) (.+?) (?:located|situated)" + _END, r"where \1 \2"),
    (r"where (?:do|does) (.+?) come from" + _END, r"where is \1 from"),
    (r"what (is|are) (.+?) used for" + _END, r"what \1 \2 for"),
    (r"what (is|are) the purpose of (.+?)" + _END, r"what \1 \2 for"),
    (r"what is the (?:job|function) of (.+?)" + _END, r"what does \1 do"),
    (r"wh(?:at|ich) is (\w+er)[,:]? (.+?) or (.+?)" + _END, r"is \2 or \3 \1"),
    (rf"(?:is|are) (?!(?:all|it|many|most|no|some|there|you) )(.+?) ({_JUDGEMENTS}) to (\w+)" + _END,
     r"is it \2 to \3 \1"),
    (r"how much is (?=\d[\d.]* +percent +of\b)|(?:calculate|compute) (?=the [^.?!]*\d)", "what is "),
    (rf"(?:give(?: me)?|show me|i (?:want|need)) (?:an?|some) (?=(?:\w+ )?{_CODE})", "write a "),
    (rf"(?:an? )?(?={_CODE} (?:for|that|to|which)\b)", "write a "),
    (r"are there any (good|nice) ", r"what are some \1 "),
    (r"(?:what|which) painter painted ", "who painted "),
    (r"who is the owner of ", "who owns "),
    (r"who was the owner of ", "who owned "),
    (r"(?:by whom was )(.+?) (\w+ed)" + _END, r"who \2 \1"),
    (r"who (?:was|were) (.+?) (\w+ed) by" + _END, r"who \2 \1"),
    (r"(.{1,60}?) was (\w+ed) by whom" + _END, r"who \2 \1"),
    (r"where can i find the (nearest|closest) ", r"where is the \1 "),
    (r"how high (is|are) the (.*\b(?:fee|rate|rent|salary|tax|wage)s?\b)", r"what \1 the \2"),
    (r"is it better to (.+?) or (?:to )?", r"should i \1 or "),
    (r"is it worse to (.+?) or (?:to )?", r"should i not \1 or "),
    (r"what is the (?:correct )?pronunciation of ", "how do i pronounce "),
    (r"what is the (?:correct )?spelling of ", "how do i spell "),
    (r"how (?:do|would|should) (?:you|one) (pronounce|spell) ", r"how do i \1 "),
    (r"(?:explain|define) (?!(?:how|why|what|where|when|who|which|whether|that|if|the|my|our|your|his|her|their|its|"
     r"analy[sz]e|plan|this|these|those|it|to)\b)([a-z]+(?: [a-z]+){0,3}?)(?: (?:for|to) me)?" + _END, r"what is \1"),
    (r"(?:give|make|write) a summary of ", "summarize "),
    (r"i need to (book|cancel|change|exchange|order|renew|replace|report|return|update|upgrade) ", r"i want to \1 "),
    (r"how (can|could|should) ((?:(?!be\b|i\b|you\b|we\b|he\b|she\b|they\b|my\b|our\b|your\b)\w+ ){1,4}?)"
     r"be (\w+(?:ed|en))" + _END, r"how \1 i \3 \2"),
)  # fmt: skip
"""Wordings of questions, as patterns for a text in one spelling, and the wording that replaces each."""

MAKER_VERBS = {
    "author": "wrote", "writer": "wrote", "inventor": "invented", "founder": "founded", "composer": "composed",
    "painter": "painted", "creator": "created", "discoverer": "discovered", "winner": "won",
}  # fmt: skip
"""Makers of things, and their verbs, in the past tense as things are made once: "who is the author of", "who wrote"."""
MAKER_PATTERN = rf"who (?:is|was) (?:the )?({'|'.join(MAKER_VERBS)}) of "

QUESTION_WORDS = word_set("""wie wo wer wen wem wessen was wann warum wieso weshalb woher wohin welche welcher welches
    welchen welchem wieviel kann kannst können könnt könnte könnten darf dürfen muss müssen soll sollte ist sind hat
    hast haben habt gibt comment où qui quand pourquoi combien quel quelle quels quelles quoi est puis peut peux pouvez
    cómo dónde quién quiénes cuándo cuál cuáles cuánto cuánta cuántos cuántas qué adónde come dove chi quando perché
    quale quali quanto quanta quanti quante che onde quem qual quais quantos quantas hoe waar wanneer wat waarom welk
    welke como hoeveel kan mag is zijn heb heeft как что где когда почему зачем кто сколько какой какая какое какие куда
    откуда чей jak gdzie kiedy dlaczego kto ile co czy hur var när varför vem vad hvor hvordan hvornår hvorfor hvem hvad
    hva når nasıl nerede neden niçin kim kaç hangi bagaimana dimana kapan mengapa siapa berapa apa apakah كيف أين متى
    لماذا من ماذا هل""")  # noqa: RUF001 - Turkish
"""Words of other languages with which questions begin, and statements hardly ever."""

QUESTION_PARTS = word_set("""吗 嗎 呢 什么 什麼 怎 哪 谁 誰 多少 几 幾 何 ますか ですか ましたか ませんか どう どこ どの
    いつ なぜ 어떻게 왜 어디 언제 누구 무엇 몇 얼마 까요 나요 कैसे कहाँ कब क्यों कौन क्या कितन อย่างไร อะไร ไหม ทำไม
    ที่ไหน เมื่อไ ใคร เท่าไ nào gì đâu nhiêu""")
"""Parts of a text that mark a question wherever they are, in languages that do not move question words."""
