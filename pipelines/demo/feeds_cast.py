"""The people of the demo's feed and their posts. All of them are invented."""

from dataclasses import dataclass

from datastore.feeds.visibility import Visibility

# The users of the demo's tokens. The demo does not post, comment or follow for them.
VISITOR, ADMIN = "demo", "admin"
# Is created last and has no posts: if this user exists, so does all other data.
NEWCOMER = "zoe"

NAMES = {
    "mira": ("Mira Sandoval", "Baker at the harbour. Up at four, asleep at nine."),
    "teo": ("Teo Lindqvist", "Kites, wind, and the physics of both."),
    "juno": ("Juno Park", "Street photographer. One lens, no flash."),
    "pavel": ("Pavel Horak", "Retired seismologist. Still counting."),
    "sana": ("Sana Iqbal", "Leg-spinner for the Kites, nurse for everybody else."),
    "oskar": ("Oskar Brandt", "I repair bicycles and tell their stories."),
    "lin": ("Lin Moreau", "Plays the cello on bridges."),
    "amara": ("Amara Okafor", "City gardener. Ask me about tomatoes."),
    "felix": ("Felix Anders", "Maps of places that are nearly there."),
    "noor": ("Noor Haddad", "Librarian of Lantern Bay. Cats welcome."),
    VISITOR: ("Robin Vale", "Here to look around."),
    ADMIN: ("Ines Keller", "Keeps the lights of this place on."),
    NEWCOMER: ("Zoe Marchetti", "Just arrived. Say hello!"),
}
CAST = tuple(name for name in NAMES if name not in (VISITOR, ADMIN, NEWCOMER))

FOLLOWS = {
    VISITOR: "mira teo juno pavel sana lin amara noor",
    ADMIN: "demo noor felix",
    "mira": "demo juno amara noor lin",
    "teo": "demo pavel sana felix",
    "juno": "mira lin oskar felix noor",
    "pavel": "teo felix noor",
    "sana": "demo teo oskar mira",
    "oskar": "sana juno felix teo mira",
    "lin": "demo mira juno noor",
    "amara": "mira noor sana pavel",
    "felix": "pavel teo oskar noor admin",
    "noor": "demo mira lin amara felix juno",
}


@dataclass(frozen=True, slots=True)
class ScriptedPost:
    """A post that the demo starts with."""

    author: str
    #: The age of the post at the start.
    hours: float
    text: str
    #: The most likes that it gets: only users who may see it like it.
    likes: int = 0
    #: Pairs of user and text.
    comments: tuple[tuple[str, str], ...] = ()
    visibility: Visibility = Visibility.PUBLIC


FOLLOWERS, PRIVATE = Visibility.FOLLOWERS, Visibility.PRIVATE

# Posts of one author are numbered from the newest: `mira-1`.
SCRIPT = (
    ScriptedPost(
        "mira",
        0.2,
        "First tray of the day: cardamom buns, still too hot to hold. #baking #lanternbay",
        6,
        (
            ("noor", "The library opens in ten minutes. Just saying."),
            ("amara", "Keep two for me, please."),
            ("lin", "I can smell them from the bridge."),
            ("demo", "What time do they sell out?"),
            ("mira", "@demo by eight, most days."),
        ),
    ),
    ScriptedPost(
        "teo",
        0.7,
        "Wind is up to 18 knots at the pier. Bring the small kite, @demo. #kites #wind",
        4,
        (("sana", "After my shift!"), ("demo", "On my way.")),
    ),
    ScriptedPost(
        "juno", 1.1, "Rain on glass, tram four, one frame. #photography #lanternbay", 7, (("lin", "That light."),)
    ),
    ScriptedPost(
        "demo",
        1.6,
        "Moved to #lanternbay last month and still find a new street every day. Where to next?",
        6,
        (
            ("noor", "The reading room, of course."),
            ("juno", "Tram four to the end, then walk back."),
            ("mira", "The bakery at the harbour. I may be biased."),
        ),
    ),
    ScriptedPost(
        "pavel",
        2.3,
        "A magnitude 2.1 west of the bay this morning. You slept through it, and so did the cat. #earthquake",
        5,
        (("felix", "Plotted it. It is on the old fault line."), ("amara", "My tomatoes did not.")),
    ),
    ScriptedPost(
        "sana", 3.0, "Four wickets, one bruise, no regrets. #cricket #kites", 5, (("teo", "The good Kites."),)
    ),
    ScriptedPost(
        "noor", 3.8, "The cat returned a book today. It was not overdue. #library #cats", 8, (("mira", "Good cat."),)
    ),
    ScriptedPost(
        "lin", 4.5, "Bridge at six: Bach first, requests later. #music", 4, (("noor", "Request: more Bach."),)
    ),
    ScriptedPost("oskar", 5.2, "A 1962 frame came in with its first bell. It still rings. #bicycles", 3),
    ScriptedPost(
        "amara", 6.0, "Tomatoes on the roof of the library, week nine. #garden #library", 5, (("noor", "Our roof!"),)
    ),
    ScriptedPost(
        "felix", 7.4, "A map of every bench with a view. There are 41. #maps #lanternbay", 6, (("oskar", "42."),)
    ),
    ScriptedPost("teo", 8.1, "A short reading list for anybody who wants to fly: start with knots. #kites", 2),
    ScriptedPost("juno", 9.9, "For my followers: the pictures I will not hang. #photography", 3, visibility=FOLLOWERS),
    ScriptedPost("demo", 11.5, "Note to self: ask @noor for the map of 1911. #maps", visibility=PRIVATE),
    ScriptedPost("mira", 13.0, "Rye needs patience, and I need rye. #baking", 4, (("amara", "And butter."),)),
    ScriptedPost("pavel", 15.5, "Why small quakes are good news, in five sentences, tomorrow. #earthquake #science", 3),
    ScriptedPost(
        "noor", 18.0, "Late opening tonight: poems, tea and one cat. #library", 6, (("lin", "I bring the cello."),)
    ),
    ScriptedPost("sana", 20.0, "Night shift done. Somebody make me a coffee. #lanternbay", 4, visibility=FOLLOWERS),
    ScriptedPost("lin", 22.5, "New strings. The bridge and I are in tune again. #music", 5),
    ScriptedPost(
        "demo", 24.0, "Saw @lin play on the bridge. Stayed for all of it. #music", 5, (("lin", "I saw you!"),)
    ),
    ScriptedPost("amara", 26.0, "Swap: basil for jam jars. #garden", 2, (("mira", "Deal."),)),
    ScriptedPost("oskar", 28.5, "Tyres are like shoes: no one thanks you until it rains. #bicycles", 4),
    ScriptedPost(
        "felix", 30.0, "Old maps lie politely. New ones do it with confidence. #maps", 5, (("pavel", "So true."),)
    ),
    ScriptedPost(
        "teo", 33.0, "The red kite survived. The fence did not. #kites", 3, (("oskar", "I can mend fences too."),)
    ),
    ScriptedPost("juno", 36.0, "Portrait of @oskar with the bell of 1962. #photography #bicycles", 6),
    ScriptedPost(
        "admin", 38.0, "All systems are fine; the disks hum in D minor. #status", 2, (("felix", "Confirmed."),)
    ),
    ScriptedPost("mira", 41.0, "Yesterday's bread is tomorrow's pudding. #baking", 3),
    ScriptedPost("pavel", 44.0, "Found my field book of 1987. The handwriting has not improved. #science", 4),
    ScriptedPost(
        "noor", 47.0, "We now lend umbrellas, kites and one accordion. #library #kites", 7, (("teo", "Finally!"),)
    ),
    ScriptedPost("sana", 50.0, "Nets at five. Beginners get the good bat. #cricket", 3),
    ScriptedPost("lin", 54.0, "Do not tell my landlord: I practise at night. #music", visibility=FOLLOWERS),
    ScriptedPost(
        "demo", 57.0, "First post! Hello, #lanternbay.", 7, (("noor", "Welcome!"), ("sana", "Welcome, Robin!"))
    ),
    ScriptedPost("amara", 60.0, "The bees are back on the roof. #garden #lanternbay", 6),
    ScriptedPost("oskar", 65.0, "Lost: one 13 mm spanner. Found: four 10 mm ones. #bicycles", 5),
    ScriptedPost("felix", 70.0, "Walked every street that begins with K. #maps", 2),
    ScriptedPost(
        "teo", 74.0, "Wind map of the pier, drawn with 30 paper boats. #wind #science", 4, (("felix", "Send it."),)
    ),
    ScriptedPost("juno", 79.0, "Shop windows before opening. #photography", 3),
    ScriptedPost(
        "pavel", 84.0, "Tsunami drill on Friday, buns afterwards. #earthquake #baking", 4, (("mira", "Ready."),)
    ),
    ScriptedPost("noor", 90.0, "Quiet hour is from two to three. The cat is exempt. #library #cats", 6),
    ScriptedPost(
        "mira", 96.0, "Who else wakes before the gulls? #baking #lanternbay", 5, (("sana", "Or has not slept yet."),)
    ),
)

# The texts of live posts and live comments.
POST_TEXTS = (
    "The gulls are at it again. #lanternbay",
    "A tray of rolls is looking for a home. #baking",
    "Gusts from the west, and an empty pier. @demo? #kites #wind",
    "Light like honey on tram four. #photography",
    "Another small tremor. The cat opened one eye. #earthquake #cats",
    "Rain stopped play, so we played cards. #cricket",
    "A bell, a basket, a new chain: off it goes. #bicycles",
    "Scales first. Then the loud piece. #music",
    "The first strawberry of the season was mine. #garden",
    "Found a street that is on no map. #maps",
    "Somebody left a letter from 1954 in a cookbook. #library",
    "Has anybody shown @demo the lighthouse yet? #lanternbay",
)
COMMENT_TEXTS = (
    "I was thinking the same.",
    "Tell us more!",
    "See you there.",
    "This made my day.",
    "You should talk to @noor about that.",
    "Save me a seat.",
    "That is so you.",
    "Agreed, @demo will like this.",
)
