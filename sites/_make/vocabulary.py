"""Words the made code and its messages are put together from."""

from __future__ import annotations

import zlib


def listed(text: str) -> tuple[str, ...]:
    """Words of a text."""
    return tuple(text.split())


# Which words are frequent must not follow the alphabet.
TERMS = sorted(
    listed("""
access account action active activity actor address album alert align anchor animation answer app archive area
article aspect asset async attach audience audio avatar badge banner base batch binary block bold border bottom
bound box branch brand bridge browser buffer bundle button cache calendar call camera cancel candidate caption card
carousel cell change channel chart check choice chunk circle city clean clear click client clip clock close cloud
code collapse collection color column comment commit common compact compare compose config connect consent consumer
contact container content context control cookie copy core corner count country cover create crop current cursor
custom daily dark data date day debug decode default delay delete delta dense depth desktop detail device dialog
diff digest direct disable discover display divider document domain done download draft drag draw drawer drop
duration edge edit effect element email embed empty enable encode end endpoint enter entity entry error event exact
exit expand expire explore export extra face fade failure fallback favorite feature feed field file fill filter find
first fixed flag flat flow focus folder follow font footer form format forward frame friend front full gallery gate
gesture global grade graph grid group guest handle hash header height help hero hidden highlight history home hook
host hour hover icon image import inbox index info initial inline input insert inset inspect install item join key
label language large last launch layer layout lazy left length level lib light like limit line link list live load
local locale location lock log login logo long loop main map margin mark mask match media member memory menu merge
message meta method middle minute mobile modal mode model module moment month motion mount mouse name native nav
network news next node note notice number object offer offset online open option order origin outer overlay owner
pack padding page pager pane panel parent parse part password path pause payload peek pending people permission
person phone photo pick pin pixel place plain plan play player point pointer pool popover portal position post
preload preset press preview primary privacy profile prompt provider public publish pulse push query queue quick
quote radius range rank rate ratio raw reach reaction read ready recent record redirect reduce reel refresh region
register relay release reload remote remove render replay reply report request require reset resize resolve resource
response rest result retry return review right ring role root rotate round route row rule run safe sample save scale
scan scene schedule scope score screen script scroll search second section secret select send sensor series server
service session setting shadow shape share sheet shift short show side signal simple single size skeleton skip slide
small snap social sort source space span spinner split square stack stage start state static status step sticker stop
store story stream stretch string strip strong style submit suggest summary surface switch symbol sync system tab
table tag target task team template term text theme thread thumb tick tile time timer tint title toast toggle token
tool top touch trace track transfer transform tray tree trigger trim type undo unit unread update upload user valid
value vector verify version video view viewer visible visit volume wait watch week weight width window word worker
wrap year zone zoom
"""),
    key=lambda word: zlib.crc32(word.encode()),
)
"""Words of identifiers, the frequent ones first."""
VERBS = listed("""
apply build check clamp collect compute create decode derive encode ensure fetch find format get handle has init is load
make map merge normalize observe parse pick prepare read reduce register render reset resolve schedule select serialize
set should sort split start subscribe sync to toggle track update use validate
""")
"""First words of function names."""
ACTIONS = listed("""
add archive block change check copy find follow hide move mute open pin remove rename report restore review save search
select send share show turn unblock unfollow update upload use view
""")
"""What a message asks its reader to do."""
ADJECTIVES = listed(
    "available blocked hidden limited paused pinned private public ready recent removed saved shared visible"
)
"""States a message may speak of."""
EVENTS = listed("""
IMPRESSION CLICK_START CLICK_END VIEW_OPEN VIEW_CLOSE MEDIA_LOADED MEDIA_FAILED SESSION_START SESSION_END QUEUE_PUSH
QUEUE_FLUSH TOKEN_SET TOKEN_CLEAR DIALOG_OPEN DIALOG_CLOSE FIELD_FOCUS FIELD_BLUR ROUTE_ENTER
""")
"""Events a reducer answers."""
TAGS = listed("""
article aside button div div div footer form header input label li main nav p section span span span ul
""")
"""Elements of components, as often as they occur."""
SENTENCES = (
    "{Verb} the {a} {b} before you {verb} {c}.",
    "You can {verb} your {a} and {b} at any time in {c} settings.",
    "We couldn't {verb} this {a}. Check your {b} and try again.",
    "{count} people {verb} {a}s from this {b}",
    "{name} wants to {verb} your {a} {b}",
    "This {a} isn't {adj} in your {b} yet.",
    "{Verb} {a}",
    "{A} {b}",
    "Your {a} was {adj} from the {b} by {name}. Learn more about {c} {d}.",
    "Turn on {a} to {verb} every {b} of the {c}, even when the {d} is {adj}.",
    "If you {verb} this {a}, its {b} will no longer be {adj} to the people who follow {name}.",
    "To keep your {a} {adj}, {verb} the {b} we sent to {name} within {count} minutes.",
)
"""Messages with gaps."""
