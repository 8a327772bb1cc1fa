"""Words that the verifier knows: English, and some of other large languages. Data only."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, product

from langmem_adapters.language.analysis import stem
from langmem_adapters.language.english import PASTS, SPELLINGS
from langmem_adapters.language.lists import base_forms, group_names, word_groups, word_set


@lru_cache(maxsize=1 << 14)
def stem_of(word: str) -> str:
    """The stem of a word in one spelling: "colours" and "color", "organise" and "organize" are the same."""
    return stem(american_spelling(IRREGULAR_FORMS.get(word, word))) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1 << 14)
def american_spelling(word: str) -> str:
    """A word in American spelling."""
    word = SPELLINGS.get(word) or SPELLINGS.get(word.removesuffix("s"), word)
    if len(word) > 6:  # noqa: PLR2004 - "rise" and "wise" are no British spellings
        for british, american in _AMERICAN_SUFFIXES:
            if word.endswith(british):
                word = word.removesuffix(british) + american
                break
    return word


_AMERICAN_SUFFIXES = (
    ("isation", "ization"), ("isations", "izations"), ("ise", "ize"), ("ised", "ized"), ("ises", "izes"),
    ("ising", "izing"), ("yse", "yze"), ("ysed", "yzed"), ("ysing", "yzing"), ("our", "or"), ("ours", "ors"),
    ("oured", "ored"), ("ouring", "oring"), ("ourite", "orite"), ("ourites", "orites"), ("ourable", "orable"),
    ("ourful", "orful"), ("ourhood", "orhood"), ("ourhoods", "orhoods"), ("dgement", "dgment"), ("dgements", "dgments"),
    ("ogue", "og"), ("ogues", "ogs"), ("aemia", "emia"), ("aemic", "emic"), ("rrhoea", "rrhea"), ("fulfil", "fulfill"),
    ("fulfils", "fulfills"),
)  # fmt: skip


# Irregular past forms; but a "shot" is also a noun, so it is no "shoot".
_PAST_FORMS = {past: verb for past, verb in PASTS.items() if past != "shot"} | base_forms(
    "bite bit, die died, sink sank sunk, use used"
)
IRREGULAR_FORMS = _PAST_FORMS | base_forms("""go goes, die dies dying dead death, child children kids kid, foot feet,
    life lives, man men, woman women, mouse mice, person people, tooth teeth, wife wives, missus mrs""")


def is_past(word: str) -> bool:
    """Whether a word has the form of a past tense or of a past participle: "paid", "closed"."""
    return word in _PAST_FORMS or (word.endswith("ed") and len(word) > _MAX_NON_PAST_CHARS)


_MAX_NON_PAST_CHARS = 4  # words that are no longer, such as "need" and "feed", are no past forms
ENGLISH_MARKERS = word_set("""a about an and any are as at be because been but by can could did do does for from had has
    have how i if in into is it its me my of on or our please should some than that the their them there these they this
    to was we were what when where which who why will with would you your""")
"""Words that mark a text as English."""

FOREIGN_MARKERS = word_set("""aan abbiamo adalah al anche antes ao aos apa apakah auf aus aux avec avez avoir
    bagaimana bei beim ben bij bir bisa bu ce cette che chez chi como con cosa cuando czy da dalla dans dari das dass
    de debo degli dei del della den dengan der des desde det deve devo deze di dich die dir dit donde dopo dos du
    een ein eine einem einen einer eines el ela ele eles elle elles em en es est esta este et faut foi gdzie geen gli
    habe haben hanno hasta heb heeft het hij hoe hoeveel hun hur hvad hvor ich ihm ihn ik il ile ist itu jag jak
    je jeg jest jij kak kamu kan kann kto la las le les leur lo los maar mais mein meu mi mijn minha mir mit moet mon
    muito muss na naar nach ne nedir nel nella nie noch nog nos notre nur och oder og om onde ons ont ook para pas
    pela pelo pero peut peux pode por porque posso pour pourquoi prima przed przez puede puedo puoi qual quand quando
    quanti quanto que quel quelle quem questa questo qui quien quoi saya ser ses seu sich sie soll sono sont suis suo
    sur tengo tidak tiene tu um una und une uns untuk vad van ve viel vom voor vous waar wann wanneer warum wat
    welche wem wen wer werden wie wij wir wird wo yang zijn zu zum zur""")
"""Words that mark a text in Latin letters as not English, besides all with an accent."""

STOP_WORDS = word_set("""a an the of in on at to for from by with as and or nor but if then than that this these those
    it its is are was were be been being am do does did doing have has had having i you he she we they me him her us
    them my your his their our mine yours what which who whom whose when where why how there here so such s t""")
"""Words without content of their own; guards compare some of them."""

OPTIONAL_WORDS = word_set("""some any really actually exactly ever very just also please kindly best good better great
    top way method thing possible likely know think people person someone anyone one own same different most many much
    all few other various certain particular several can could will would should may might must shall easy easily quick
    like go get make use give tell explain help want need try find let mean current currently now today nowadays still
    yet even damn fucking already always world life""")
"""Content words that are often added or left out without a difference, in all their forms."""

COURTESIES = group_names("""please kindly pls plz, thanks thank thx, hello hi hey, dear, bitte, danke, hallo, gracias,
    hola, merci, bonjour, obrigado, olá, grazie, ciao, пожалуйста, спасибо, привет, alstublieft""")
"""Words of courtesy, by all their spellings."""
POLITE_WORDS = frozenset(COURTESIES)
"""Words that do not change what is asked."""
ARTICLES = word_set("a an the")
I_WORDS = word_set("i me my mine we us our")
YOU_WORDS = word_set("you your yours")
PREPOSITIONS = word_set("""in for at on from with without under before after of by during to than as into onto against
    via using over""")

PLURAL_ONLY_NOUNS = word_set("""arms customs damages dates forces futures glasses goods grounds https manners means news
    premises proceedings savings securities spectacles spirits terms""")
"""Plurals that mean something else than several of their singular."""

CONJUNCTIONS = word_set("and or vs versus nor")
"""Words that join things whose order does not matter."""

BE_FORMS = word_set("am is are was were be been being")
PASSIVE_AUXILIARIES = BE_FORMS | word_set("get gets got getting")
MODALS = word_set("can could may might must shall should will would")
FINITE_VERBS = MODALS | word_set("am is are was were do does did has have had")
"""Verbs that stand beside others, in their finite forms."""

ASK_PATTERN = (
    "(?:(?:ask|check|confirm|detect|discover|doubt|find|guess|learn|recall|remember|say|see|show|tell|test|understand|"
    "wonder)(?:s|ed|ing)?|know(?:s|ing)?|knew|(?:decid|determin|inquir|prov)(?:e|es|ed|ing)|"
    "(?:clarif|identif|verif)(?:y|ies|ied|ying)|found|idea|said|saw|sure|told|understood|unsure|her|him|me|out|them|us)"
)
"""A pattern of words after which "if" means "whether"."""

NUMBER_WORDS = base_forms("""0 zero, 2 two twice, 3 three third, 4 four fourth, 5 five fifth, 6 six sixth, 7 seven
    seventh, 8 eight eighth, 9 nine ninth, 10 ten tenth, 11 eleven eleventh, 12 twelve dozen twelfth, 13 thirteen
    thirteenth, 14 fourteen fourteenth, 15 fifteen fifteenth, 16 sixteen sixteenth, 17 seventeen seventeenth, 18
    eighteen eighteenth, 19 nineteen nineteenth, 20 twenty twentieth, 30 thirty thirtieth, 40 forty, 50 fifty, 60
    sixty, 70 seventy, 80 eighty, 90 ninety, 100 hundred hundredth, 1000 thousand, 1000000 million, 1000000000
    billion""")
"""Figures by number word; "one" is left out, because of "the best one"."""

COUNT_WORDS = word_set("one once")
"""Words that count only beside other numbers, or after "more than" and the like."""

UNITS = group_names("""km kilometer kilometers kilometre kilometres kms, m meter meters metre metres,
    cm centimeter centimeters centimetre centimetres, mm millimeter millimeters millimetre millimetres, mile miles mi,
    ft foot feet, inch inches, yard yards, kg kilogram kilograms kilo kilos kgs, g gram grams, mg milligram milligrams,
    lb lbs pound pounds, oz ounce ounces, l liter liters litre litres, ml milliliter milliliters millilitre millilitres,
    gallon gallons, second seconds sec secs, minute minutes min mins, hour hours hr hrs, day days, week weeks,
    month months, year years yr yrs, decade decades, century centuries, celsius °c, fahrenheit °f, kelvin,
    kb kilobyte kilobytes, mb megabyte megabytes, gb gigabyte gigabytes, tb terabyte terabytes, percent %,
    dollar dollars usd $, euro euros eur €, yen jpy ¥, rupee rupees inr rs ₹, gbp £ sterling, watt watts w,
    kw kilowatt kilowatts, volt volts, amp amps, mph, kph, hz, khz, mhz, ghz, monday mondays, tuesday tuesdays,
    wednesday wednesdays, thursday thursdays, friday fridays, saturday saturdays, sunday sundays, january jan,
    february feb, march, april apr, june jun, july jul, august aug, september sep sept, october oct, november nov,
    december dec, spring, summer, autumn fall, winter, morning, noon, afternoon, evening, midnight, yesterday, today,
    tomorrow, weekday weekdays, weekend weekends, daily, hourly, weekly, monthly, quarterly, yearly annually, am a.m,
    pm p.m""")
"""Units, days, months and times of day, by all their spellings."""

NEGATIONS = word_set("""not no never without neither none nothing nobody nowhere hardly barely unable impossible
    cannot except excluding nicht kein keine keinen keiner nie niemals ohne ne pas jamais sans aucun aucune nunca jamás
    sin ningún ninguna não nem sem nenhum nenhuma non mai senza nessun nessuna niet geen nooit zonder bez не нет без
    никогда ни 不 没 没有 未 无 别 非 ない ません ぬ 안 못 없 لا ليس بدون لم لن नहीं मत बिना değil yok olmadan không
    chưa tidak bukan tanpa inte ingen aldrig utan ikke uden aldri uten ei""")
"""Words that negate a statement, in large languages."""

SYNONYMS = word_groups("""best good great top better ideal | way method mean technique step process procedure tip trick
    | mobile phone smartphone cellphone cell handset | learn study | start begin commence | buy purchase | make create
    build generate produce construct | earn money | quick fast quickly rapidly speedy | increase improve boost enhance
    raise gain grow | reduce decrease lower lessen lose cut | prevent avoid stop | difference differ different
    distinguish vs versus | difficult hard tough | affect effect impact influence consequence | happen occur | reason
    cause | get obtain acquire receive | think opinion view believe feel | person human someone somebody anyone
    one | job career employment | company firm business | country nation | book novel | photo picture image pic
    photograph | website site | college university school institute | wife spouse | lady female woman | boy guy | guy
    male man | use utilize employ usage | delete remove erase clear | fix solve resolve repair troubleshoot | recover
    retrieve restore | prepare preparation | ban demonetization demonetize scrap | usa america us american unite | uk
    britain england | important essential significant crucial vital | interesting amazing fascinating cool | explain
    describe define definition meaning mean | advantage benefit pro | disadvantage drawback con | tv television |
    application app | laptop notebook | bike motorcycle motorbike | car vehicle automobile | ask question | answer reply
    respond response | look search find | know tell | exam test examination | fat weight | facebook fb | instagram insta
    | math mathematics | government govt | pc computer | cost price expense | say claim | choose select pick |
    handle deal cope manage | overcome beat | allow permit let enable | require need necessary | show display | provide
    give offer supply | specify indicate define | contain include comprise | return give yield | method function |
    purpose goal aim | access reach | option choice alternative | guide tutorial | section part | configure setup set |
    change modify alter edit | multiple several many various | obtain retrieve get | verify check | begin start launch |
    error mistake bug | city town | trip travel journey | safe secure | legal lawful | possible feasible able | cheap
    inexpensive affordable | expensive costly | sick ill | begin initiate | convert transform change turn | combine
    merge join | load read import | save store | determine decide | identical equal same | describe explain document |
    additional extra further | assist help aid | ensure guarantee | wrong incorrect | right correct | speak talk | happy
    glad | smart intelligent clever | finish complete end | shut close | speed pace | ability capability functionality
    feature | additional new extra | alter change rename | amount number quantity count | available exist present |
    designate specify | determine set establish | divide split organize separate | replace substitute | replacement
    substitute | suggest recommend advise propose | supply pass give provide | title name call term | transition switch
    move migrate | within inside in | state specify mention declare refer reference | retrieve select fetch | related
    corresponding associated | address tackle | under below beneath | big great large huge | biggest largest greatest |
    baby infant | beautiful attractive | destination place spot | middle center | former ex | hospital clinic | mobile
    portable | position stance view | resource source | review feedback | seller vendor | series show | saying phrase
    expression | typical average normal usual | update upgrade | wage salary pay income | wealthy rich | everyday daily
    | fraud scam | issue problem trouble | clothing clothes dress | house home | apartment flat | film movie | lawyer
    attorney | physician doctor | shop store | street road | error bug fault | stop quit cease | keep retain | cook make
    prepare | all every each | repair mend | gift present | infection disease illness | purpose reason | approach method
    | folder directory | delete drop | string text | list array | invoke call run execute | execute perform | print
    output | trash bin | vacation holiday | gas petrol gasoline | postpone delay | arrive reach come | speed velocity |
    aircraft plane airplane | hotel accommodation | forget lose | visit see | eat food diet | cure treat treatment
    remedy | song music | exist live | join enroll | easy simple | easier simpler | easiest simplest | quicker faster |
    quickest fastest | often frequently | phone telephone | undo revert | loop iterate | concatenate join | luggage
    baggage | elevator lift | bigger larger | exit quit | terminate end | erase wipe | parcel package | very really |
    bike bicycle | grandma granny grandmother | grandpa granddad grandfather | mum mom mother | dad father | probability
    chance likelihood | fridge refrigerator | sofa couch | info information | ad advert advertisement | rubbish garbage
    trash | timetable schedule | cv resume | config configuration | possible possibility | symptom sign | tallest
    highest | truck lorry | pharmacy drugstore | disappear vanish | paraphrase rephrase""")
"""Groups of words that may replace each other, in all their forms."""


def _comparison_stems(word: str) -> set[str]:
    """The stems of a word and of its comparative and superlative, if it has them."""
    base = word.removesuffix("e")
    base = base[:-1] + "i" if base.endswith("y") else base
    doubled = base + base[-1] if base[-1] in "dgnt" else base
    return {stem_of(form) for form in (word, *(start + end for start in (base, doubled) for end in ("er", "est")))}


def _opposites_by_stem(pairs: str) -> dict[str, set[str]]:
    opposites: dict[str, set[str]] = {}
    for group in pairs.split("|"):
        left, right = (chain.from_iterable(map(_comparison_stems, words.split())) for words in group.split("/"))
        for one, other in product(left, right):
            opposites.setdefault(one, set()).add(other)
            opposites.setdefault(other, set()).add(one)
    return opposites


OPPOSITES = _opposites_by_stem("""
    increase gain raise grow rise boost improve/decrease reduce lose lower lessen shrink fall drop cut worsen | boy
    guy man male boyfriend husband father dad grandfather son brother nephew uncle king he him/ girl lady woman
    female girlfriend wife mother mom grandmother daughter sister niece aunt queen she her | advantage pro
    benefit/disadvantage con drawback harm | good best better top/bad worst worse evil | many much/few little | most
    more maximum highest biggest/least less fewest minimum lowest smallest | high/low | hot warm/cold cool | old
    ancient/young new modern | buy purchase/sell | open/close shut closed | start begin/stop end finish |
    before/after | first/last second | left/right wrong | up/down | north/south | east/west | love like/hate dislike
    | happy/sad | rich/poor | hard difficult/easy soft simple | fast quick/slow | big large huge/small little tiny |
    long/short | tall/short | legal/illegal | possible/impossible | positive/negative | true real/false fake |
    import/export | upload/download | enable allow activate/disable forbid deactivate block prevent ban | add insert
    append create attach/remove delete drop detach subtract | friend/enemy | white/black | day/night |
    morning/evening night | summer/winter | introvert/extrovert | theist/atheist | input/output | internal/external
    | public/private | democrat/republican | liberal/conservative | majority/minority | early/late | win/lose |
    success succeed successful/failure fail | pass/fail | accept approve/reject refuse decline deny | borrow/lend |
    send/receive | ask/answer | teach/learn | push/pull | cause/effect cure prevent | cheap/expensive dear |
    strong/weak | heavy/light | safe/dangerous | smart intelligent/stupid dumb | beautiful/ugly |
    underrated/overrated | today/tomorrow yesterday | undergraduate/graduate postgraduate | bachelor/master |
    encode/decode | encrypt/decrypt | zip/unzip | read load/write save | show/hide | join/leave | enter/exit |
    ascend/descend | horizontal/vertical | synchronous sync/asynchronous async | client/server | global/local |
    static/dynamic | single/multiple | odd/even | above over/below under | inside/outside | front/back | top/bottom
    | forward/backward | employer/employee | parent/child | teacher/student | seller/buyer | hire/fire |
    single/married | marry/divorce | alive/dead | birth/death | war/peace | light/dark | wet/dry | full/empty |
    thick/thin | fat/thin | deep/shallow | wide/narrow | loose/tight | clean/dirty | loud/quiet | sweet/sour bitter
    | for/against | encourage support/discourage oppose | include with/exclude without | arrive/leave depart |
    arrival/departure | inbound/outbound | incoming/outgoing | credit/debit | profit/loss | asset/liability |
    supply/demand | attack/defend | merge/split | expand/collapse | freeze thaw/melt | on/off | login signin/logout
    signout | in/out | home/away | sender/recipient receiver | source/destination target | acid/alkaline base |
    always/never | all every/none | everybody everyone/nobody | same/different | guilty/innocent |
    voluntary/involuntary mandatory compulsory | optional/mandatory required | temporary/permanent |
    virtual/physical | online/offline | manual/automatic | vegetarian vegan/meat | inflation/deflation |
    ancestor/descendant | predecessor/successor | next/previous | latest newest/oldest earliest | dawn/dusk |
    sunrise/sunset | upstream/downstream | upgrade/downgrade | commit/revert rollback | push/pop | lossy/lossless |
    singular/plural | prefix/suffix | uppercase/lowercase | clockwise/counterclockwise anticlockwise | current
    present existing/previous former past | upper/lower | immigrant/emigrant | landlord/tenant | plaintiff/defendant
    | yes yeah yep/no nope""")
"""The opposites and counterparts of each word, all as stems."""
