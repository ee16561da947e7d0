"""The Relay fields `node` and `nodes`."""

import strawberry

from datastore.keyspace import earthquakes, sightings
from datastore.keyspace.feeds import comments, notifications, posts, users
from datastore.keyspace.matches import active_matches, display_states, fixtures, leagues, match_follows, teams
from datastore.keyspace.photos import faces, livestreams, persons
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos import users as photo_users
from resolvers import nodes as resolve
from schema.connections import Node
from schema.fields import pattern_field

POINT_READS = (
    earthquakes.EVENT,
    sightings.USER_PROFILE,
    sightings.SIGHTING_NODE,
    sightings.WATCH_NODE,
    users.USER,
    posts.POST,
    comments.COMMENT,
    notifications.NOTIFICATION,
    photo_users.PHOTO_USER,
    library.PHOTO,
    persons.PERSON,
    faces.FACE,
    livestreams.LIVESTREAM,
    fixtures.FIXTURE,
    active_matches.STATE,
    match_follows.FOLLOW_OF_USER,
    teams.TEAM,
    leagues.LEAGUE,
    display_states.DISPLAY_STATE,
)


@strawberry.type
class NodeQueries:
    node = pattern_field(
        *POINT_READS,
        resolver=resolve.node,
        graphql_type=Node | None,
        description="Return an object by its global `id`; null if it does not exist or no longer exists. Callers "
        "may read the objects that they may read in other fields.",
    )
    nodes = pattern_field(
        *POINT_READS,
        resolver=resolve.nodes,
        graphql_type=list[Node | None],
        description="Return objects by their global ids, in the order of the ids, with null for each object that "
        "does not exist. All are read in batches.",
    )
