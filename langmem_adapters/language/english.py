"""English as data: stop words, and families of words that mean the same.

The families are those that Porter's suffixes do not unite, each with its base first. A word is in one only if it
hardly ever means anything else: "left", "rose", "vet" and "lab" are not.
"""

from __future__ import annotations

from langmem_adapters.language.lists import base_forms, word_set

STOP_WORDS = word_set("""a about above after again against ain all also am an and any are as at be because been before
    being below between both but by can cannot could did do does doing down during each few for from further had has
    have having he her here hers herself him himself his how i if in into is it its itself just me more most my myself
    no nor not now of off on once only or other our ours ourselves out over own same she should so some such than that
    the their theirs them themselves then there these they this those through to too under until up us very was we were
    what when where which while who whom whose why will with wo would you your yours yourself yourselves""")
"""English words that say little about what a text is about. Each is its own term, never a stem."""

_PAST_FORMS = """
    become became, begin began begun, bite bitten, blow blew blown, break broke broken, bring brought,
    build built, buy bought, catch caught, choose chose chosen, come came, deal dealt, dig dug,
    draw drew drawn, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed,
    feel felt, fight fought, find found, fly flew flown, forget forgot forgotten, freeze froze frozen,
    get got gotten, give gave given, go went gone, grow grew grown, hang hung, hear heard, hide hid hidden,
    hold held, keep kept, know knew known, lead led, lend lent, lose lost, make made, mean meant, meet met,
    pay paid, ride rode ridden, ring rang rung, rise risen, run ran, say said, see saw seen, seek sought,
    sell sold, send sent, shake shook shaken, shoot shot, show shown, sing sang sung, sit sat, sleep slept,
    speak spoke spoken, spend spent, stand stood, steal stole stolen, stick stuck, strike struck,
    swear swore sworn, sweep swept, swim swam swum, take took taken, teach taught, tear tore torn, tell told,
    think thought, throw threw thrown, understand understood, wake woke woken, wear wore worn, weep wept,
    win won, write wrote written
"""
_IRREGULAR_FORMS = """
    child children, foot feet, goose geese, half halves, knife knives, leaf leaves, life lives, loaf loaves, man men,
    mouse mice, person people, scarf scarves, shelf shelves, thief thieves, tooth teeth, wife wives, wolf wolves,
    woman women, bad worse worst, good better best, far farther farthest
"""

# What people say for short, or at home, and numbers. Plurals follow by themselves.
_SHORT_FORMS = """
    mother mom mum mama mommy mummy, father dad daddy papa, grandmother grandma granny nana,
    grandfather grandpa granddad, grandchild grandkid, child kid kiddo, brother bro, sister sis, aunt auntie aunty,
    husband hubby, family fam, teenager teen, puppy pup, kitten kitty, hippopotamus hippo, rhinoceros rhino,
    dinosaur dino, bicycle bike, airplane aeroplane plane, limousine limo, automobile auto,
    photograph photo pic picture, television tv telly, telephone phone cellphone smartphone, refrigerator fridge,
    microphone mic, saxophone sax, hamburger burger, vegetable veggie, doughnut donut, pajama pyjama,
    university uni, mathematics math maths, examination exam, gymnasium gym, dormitory dorm, professor prof,
    condominium condo, advertisement ad advert, business biz, celebrity celeb, champion champ,
    christmas xmas, birthday bday, comfortable comfy, congratulations congrats, demonstration demo,
    favorite favourite fave, influenza flu, information info, introduction intro, medication meds,
    memorandum memo, message msg, rehabilitation rehab, statistics stats, technology tech, thanks thx,
    okay ok, hour hr, week wk, year yr, january jan, february feb, april apr, june jun, july jul, august aug,
    september sep sept, october oct, november nov, december dec, monday mon, tuesday tue tues, wednesday wed,
    thursday thu thurs, friday fri, 2 two, 3 three, 4 four, 5 five, 6 six, 7 seven, 8 eight, 9 nine, 10 ten,
    11 eleven, 12 twelve, 13 thirteen, 14 fourteen, 15 fifteen, 16 sixteen, 17 seventeen, 18 eighteen,
    19 nineteen, 20 twenty, 30 thirty, 40 forty, 50 fifty, 60 sixty, 70 seventy, 80 eighty, 90 ninety,
    100 hundred, 1000 thousand
"""

# How the same word is spelt elsewhere; all its forms follow, as stems are compared.
_BRITISH_SPELLINGS = """
    armor armour, color colour, endeavor endeavour, favor favour, flavor flavour, glamor glamour, harbor harbour,
    honor honour, humor humour, labor labour, odor odour, rumor rumour, vapor vapour, center centre, fiber fibre,
    kilometer kilometre, liter litre, meter metre, theater theatre, gray grey, analyze analyse, apologize apologise,
    criticize criticise, customize customise, emphasize emphasise, finalize finalise, memorize memorise,
    organize organise, prioritize prioritise, realize realise, recognize recognise, socialize socialise,
    specialize specialise, summarize summarise, symbolize symbolise, utilize utilise, visualize visualise,
    aluminum aluminium, artifact artefact, catalog catalogue, check cheque, cozy cosy, defense defence,
    dialog dialogue, encyclopedia encyclopaedia, jewelry jewellery, license licence, maneuver manoeuvre, mold mould,
    mustache moustache, offense offence, pediatrician paediatrician, plow plough, practice practise,
    program programme, skeptical sceptical, sulfur sulphur, tire tyre, yogurt yoghurt
"""

# Verbs and adjectives with their nouns, people with what they do.
_RELATED_WORDS = """
    act actor actress, advise advice, angry anger, art artist artistic, bake baker bakery, behave behavior behaviour,
    believe belief, birth born, buy buyer, camp camper, child childhood, choose choice, climb climber,
    compete competition competitive competitor, create creation creative creativity creator, cycle cyclist,
    dance dancer, decide decision, deep depth, describe description, destroy destruction, die dead death dying,
    drive driver, drum drummer, explain explanation, fail failure, fame famous, farm farmer, fly flight,
    free freedom, friend friendly friendship, grow growth, guitar guitarist, health healthy, high height, hike hiker,
    history historian historical, hunger hungry, injure injury, know knowledge, lead leader leadership, long length,
    lose loss, marry marriage, member membership, mix mixture, move movement, music musician,
    neighbor neighborhood neighbour neighbourhood, paint painter, parent parenthood, patient patience, pay payment,
    photograph photography, piano pianist, play player, politics politician, pregnant pregnancy, produce production,
    prove proof, rain rainy, read reader, receive reception, repeat repetition, run runner,
    science scientific scientist, sell sale seller, serve service, sing singer song, skate skater, snow snowy,
    speak speech, strong strength, succeed success successful, sun sunny, surf surfer, swim swimmer, teach teacher,
    therapy therapist, tour tourism tourist, train trainer, treat treatment, true truth, violin violinist,
    visit visitor, warm warmth, wide width, win winner, work worker, write writer
"""


def _pluralize(word: str) -> str:
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


PASTS = base_forms(_PAST_FORMS)
"""Irregular pasts and past participles, with their verbs."""

BASES = base_forms(_RELATED_WORDS + "," + _SHORT_FORMS)
BASES |= {_pluralize(form): base for form, base in BASES.items()}
BASES |= PASTS | base_forms(_IRREGULAR_FORMS)
"""Forms of English words, in lower case, with the word that stands for all of its family."""

SPELLINGS = base_forms(_BRITISH_SPELLINGS)
"""British spellings, with the American ones."""
