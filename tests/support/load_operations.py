"""The operations of the mixed load: each write with the fact that it sets, each read with the check of its response."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from datastore.model.identity import Role
from datastore.sightings.sightings import LIFETIME
from tests.support.photo_steps import BOX

if TYPE_CHECKING:
    from tests.support.mixed_load import Actor

AREA, CATEGORY = "Harbor", "Cats"
QUAKES = 5
LATEST = 40


@dataclass(frozen=True)
class Write:
    """A mutation that sets a fact to `value`, and the facts in `more`. `acknowledged` is called with its data.

    `once`: no other write sets these facts.
    """

    name: str
    query: str
    variables: dict[str, Any]
    fact: tuple[str, ...]
    value: Any
    role: Role = Role.USER
    acknowledged: Callable[[Any], None] = field(default=lambda data: None)
    more: tuple[tuple[str, ...], ...] = ()
    once: bool = False

    @property
    def facts(self) -> tuple[tuple[str, ...], ...]:
        return (self.fact, *self.more)


@dataclass(frozen=True)
class Sighted:
    """An acknowledged sighting. `began`: when it was first sent; `reported_at`: the time in the response."""

    reporter: str
    id: str
    began: datetime
    reported_at: str


@dataclass(frozen=True)
class Read:
    """A query and the check of its data."""

    name: str
    query: str
    variables: dict[str, Any]
    right: Callable[[Any], bool]
    role: Role = Role.USER


# --- The feed ---------------------------------------------------------------------------------------------------------


def create_post(actor: "Actor") -> Write:
    post, text = actor.new_id(), f"Number {actor.done}"
    query = "mutation ($id: ID!, $text: String!) { done: createPost(input: {postId: $id, text: $text}) { postId } }"
    return Write(
        "createPost",
        query,
        {"id": post, "text": text},
        ("post", post),
        text,
        acknowledged=lambda _: actor.load.posts.append((actor.name, post)),
        once=True,
    )


def like(actor: "Actor") -> Write | None:
    if not actor.load.posts:
        return None
    _, post = actor.rng.choice(actor.load.posts)
    likes = actor.rng.random() < 0.7
    name = "likePost" if likes else "unlikePost"
    query = f"mutation ($post: ID!) {{ done: {name}(postId: $post) {{ createdAt }} }}"
    return Write(name, query, {"post": post}, ("like", post, actor.name), True if likes else None)


def comment(actor: "Actor") -> Write | None:
    if not actor.load.posts:
        return None
    (_, post), text = actor.rng.choice(actor.load.posts), f"Number {actor.done}"
    query = """mutation ($post: ID!, $id: ID!, $text: String!) {
      done: createComment(postId: $post, input: {commentId: $id, text: $text}) { commentId } }"""
    comment_id = actor.new_id()
    variables = {"post": post, "id": comment_id, "text": text}
    return Write("createComment", query, variables, ("comment", post, comment_id), text, once=True)


def follow(actor: "Actor") -> Write:
    other = actor.rng.choice([one.name for one in actor.load.actors if one is not actor])
    follows = actor.rng.random() < 0.7
    name = "follow" if follows else "unfollow"
    query = f"mutation ($other: ID!) {{ done: {name}(userId: $other) {{ createdAt }} }}"
    return Write(name, query, {"other": other}, ("follow", actor.name, other), True if follows else None)


def read_post(actor: "Actor") -> Read | None:
    if not actor.load.posts:
        return None
    author, post = actor.rng.choice(actor.load.posts)
    (text,) = actor.load.truth.may_be["post", post]
    wanted = {"post": {"postId": post, "text": text, "author": {"userId": author}}}
    return Read(
        "post", "query ($id: ID!) { post(id: $id) { postId text author { userId } } }", {"id": post}, wanted.__eq__
    )


def read_comments(actor: "Actor") -> Read | None:
    """Read the comments of a post. Each must appear once as it was written; those that existed before must be there."""
    if not actor.load.posts:
        return None
    _, post = actor.rng.choice(actor.load.posts)
    there = {fact for fact in actor.load.truth.certain("comment") if fact[1] == post}
    query = """query ($post: ID!) { comments(postId: $post, first: 100) {
      nodes { commentId text author { userId } } } }"""

    def right(data: Any) -> bool:
        nodes = data["comments"]["nodes"]
        texts = {("comment", post, node["commentId"]): node["text"] for node in nodes}
        missing = len(nodes) < 100 and not there <= texts.keys()
        once = len(texts) == len(nodes) and not missing
        return once and all(text in actor.load.truth.tried[fact] for fact, text in texts.items())

    return Read("comments", query, {"post": post}, right)


# --- Sightings --------------------------------------------------------------------------------------------------------


def report(actor: "Actor") -> Write:
    description = f"{actor.name} {actor.done}"
    query = f"""mutation ($text: String!) {{ done: reportSighting(
      input: {{area: "{AREA}", category: "{CATEGORY}", description: $text}}) {{ sightingId reportedAt }} }}"""

    began = actor.load.served.clock()

    def known(data: Any) -> None:
        done = data["done"]
        actor.load.sightings.append(Sighted(actor.name, done["sightingId"], began, done["reportedAt"]))

    fact = ("sighting", description)
    return Write("reportSighting", query, {"text": description}, fact, 1, acknowledged=known, once=True)


def confirm(actor: "Actor") -> Write | None:
    others = [one.id for one in _still_there(actor) if one.reporter != actor.name]
    if not others:
        return None
    sighting = actor.rng.choice(others)
    query = f'mutation ($id: ID!) {{ done: confirmSighting(area: "{AREA}", sightingId: $id) {{ sightingId }} }}'
    return Write("confirmSighting", query, {"id": sighting}, ("confirmation", sighting, actor.name), True)


def _still_there(actor: "Actor") -> list["Sighted"]:
    """Return the latest sightings, without those that may expire during retries."""
    began = actor.load.served.clock() - LIFETIME / 3
    return [one for one in actor.load.sightings[-LATEST:] if one.began > began]


def read_sightings(actor: "Actor") -> Read:
    query = f'{{ sightings(area: "{AREA}", first: 25) {{ nodes {{ sightingId description reporterId reportedAt }} }} }}'
    there = _still_there(actor)

    def right(data: Any) -> bool:
        nodes = data["sightings"]["nodes"]
        once = len({node["sightingId"] for node in nodes}) == len(nodes)
        received = {node["sightingId"] for node in nodes}
        oldest = nodes[-1]["reportedAt"] if len(nodes) == 25 else ""  # the newest are first
        missing = [one for one in there if one.reported_at > oldest and one.id not in received]
        return once and not missing and all(node["description"].startswith(node["reporterId"]) for node in nodes)

    return Read("sightings", query, {}, right)


# --- Photos -----------------------------------------------------------------------------------------------------------


def create_person(actor: "Actor") -> Write:
    person, name = actor.rng.choice(actor.persons), f"Name {actor.name}"
    query = (
        "mutation ($id: ID!, $name: String!) { done: createPerson(input: {personId: $id, name: $name}) { personId } }"
    )
    variables = {"id": person, "name": name}
    return Write("createPerson", query, variables, ("person", person), name, Role.ADMIN)


def tag(actor: "Actor") -> Write | None:
    """Tag a person on the actor's own photo, if the person certainly exists."""
    person, number = actor.rng.choice([*actor.faces])
    if None in actor.load.truth.may_be["person", person]:
        return None
    face = actor.faces[person, number]
    if actor.rng.random() < 0.5:
        query = (
            "mutation ($image: ID!, $input: TagFaceInput!) { done: tagFace(imageId: $image, input: $input) { faceId } }"
        )
        given = {"personId": person, "faceId": face, "boundingBox": BOX}
        return Write("tagFace", query, {"image": actor.photo, "input": given}, ("face", face), person)
    query = "mutation ($face: ID!, $image: ID!) { done: untagFace(faceId: $face, imageId: $image) { faceId } }"
    return Write("untagFace", query, {"face": face, "image": actor.photo}, ("face", face), None)


def read_person(actor: "Actor") -> Read:
    person = actor.rng.choice(actor.persons)

    def right(data: Any) -> bool:
        found = data["person"]
        return actor.load.truth.holds(("person", person), found and found["name"])

    query = "query ($id: ID!) { person(id: $id) { personId name faceCount } }"
    return Read("person", query, {"id": person}, right)


def read_photo(actor: "Actor") -> Read:
    photo = actor.rng.choice(actor.load.photos)

    def right(data: Any) -> bool:
        found = data["photo"]
        # Only the owner knows which change is the last.
        is_right = photo != actor.photo or actor.load.truth.holds(("photo", photo), found["description"])
        return is_right and found["imageId"] == photo

    query = "query ($id: ID!) { photo(id: $id) { imageId description } }"
    return Read("photo", query, {"id": photo}, right, Role.ADMIN)


def describe_photo(actor: "Actor") -> Write:
    query = """mutation ($id: ID!, $text: String!) {
      done: updatePhoto(id: $id, input: {description: $text}) { description } }"""
    text = f"Number {actor.done}"
    return Write("updatePhoto", query, {"id": actor.photo, "text": text}, ("photo", actor.photo), text)


# --- Cricket ----------------------------------------------------------------------------------------------------------


def follow_match(actor: "Actor") -> Write:
    side = actor.rng.randrange(3)
    team = f"{side}0" if side else None
    follows = 'mutation ($team: ID!) { done: followMatch(matchId: "m1", input: {teamId: $team}) { teamId } }'
    query = follows if team else 'mutation { done: unfollowMatch(matchId: "m1") { teamId } }'
    variables = {"team": team} if team else {}
    return Write("followMatch" if team else "unfollowMatch", query, variables, ("match follow", actor.name), team)


def rename_team(actor: "Actor") -> Write:
    name = f"Team {actor.done}"
    query = "mutation ($id: ID!, $name: String!) { done: updateTeam(id: $id, input: {name: $name}) { name } }"
    variables = {"id": f"t-{actor.name}", "name": name}
    return Write("updateTeam", query, variables, ("team", f"t-{actor.name}"), name, Role.ADMIN)


def sync_teams(actor: "Actor") -> Write:
    """Write three teams in one batch."""
    name, teams = f"Squad {actor.done}", [f"s{number}-{actor.name}" for number in range(3)]
    query = "mutation ($teams: [TeamInput!]!) { done: syncTeams(input: $teams) { teamId } }"
    given = [{"teamId": team, "name": name, "code": "S"} for team in teams]
    first, *more = [("team", team) for team in teams]
    return Write("syncTeams", query, {"teams": given}, first, name, Role.SYSTEM, more=tuple(more))


def annotate_fixture(actor: "Actor") -> Write:
    """Set the note of the actor's own fixture. Its revision rises with each change."""
    query = """mutation ($id: ID!, $note: String!) {
      done: updateFixture(id: $id, input: {note: $note}) { matchId note revision } }"""
    fixture, note = f"f-{actor.name}", f"Number {actor.done}"

    def rises(data: Any) -> None:
        done, last = data["done"], actor.load.revisions.get(fixture, -1)
        if done["note"] != note or done["revision"] <= last:
            actor.load.report.wrong.append(("updateFixture", last, note, done))
        actor.load.revisions[fixture] = done["revision"]

    variables = {"id": fixture, "note": note}
    return Write("updateFixture", query, variables, ("fixture", fixture), note, Role.SYSTEM, acknowledged=rises)


def read_match_follow(actor: "Actor") -> Read:
    def right(data: Any) -> bool:
        found = data["matchFollow"]
        return actor.load.truth.holds(("match follow", actor.name), found and found["teamId"])

    return Read("matchFollow", '{ matchFollow(matchId: "m1") { teamId } }', {}, right)


def read_teams(actor: "Actor") -> Read:
    """Read the actor's own team and one of another actor."""
    other = actor.rng.choice(actor.load.actors)

    def right(data: Any) -> bool:
        return actor.load.truth.holds(("team", f"t-{actor.name}"), data["own"]["name"])

    query = "query ($own: ID!, $other: ID!) { own: team(id: $own) { name } other: team(id: $other) { name } }"
    return Read("teams", query, {"own": f"t-{actor.name}", "other": f"t-{other.name}"}, right)


def read_team(actor: "Actor") -> Read:
    team = f"t-{actor.name}"

    def right(data: Any) -> bool:
        return actor.load.truth.holds(("team", team), data["team"]["name"])

    return Read("team", "query ($id: ID!) { team(id: $id) { name } }", {"id": team}, right)


# --- Earthquakes ------------------------------------------------------------------------------------------------------


def read_earthquake(actor: "Actor") -> Read:
    event = f"us{actor.rng.randrange(2 * QUAKES)}"
    wanted = {"earthquake": {"eventId": event, "magnitude": 4.5} if int(event[2:]) < QUAKES else None}
    query = "query ($id: ID!) { earthquake(id: $id) { eventId magnitude } }"
    return Read("earthquake", query, {"id": event}, wanted.__eq__)


def read_earthquakes(actor: "Actor") -> Read:
    wanted = {"earthquakes": {"nodes": [{"eventId": f"us{number}"} for number in range(QUAKES)]}}
    return Read("earthquakes", "{ earthquakes { nodes { eventId } } }", {}, wanted.__eq__)


WRITES: list[Callable[["Actor"], Write | None]] = [
    *(create_post, like, like, comment, follow),
    *(report, confirm),
    *(create_person, tag, tag, describe_photo),
    *(follow_match, rename_team, rename_team, sync_teams, annotate_fixture),
]
READS: list[Callable[["Actor"], Read | None]] = [
    *(read_post, read_comments),
    read_sightings,
    *(read_person, read_photo),
    *(read_match_follow, read_team, read_teams, read_teams),
    *(read_earthquake, read_earthquakes),
]
