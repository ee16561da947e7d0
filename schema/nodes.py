"""Relay's `node` and `nodes`."""

import strawberry

from datastore.keyspace import earthquakes, sightings
from datastore.keyspace.feeds import comments, notifications, posts, users
from datastore.keyspace.matches import active_matches, display_states, fixtures, leagues, match_follows, teams
from datastore.keyspace.photos import faces, livestreams, persons
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos import users as photo_users
from resolvers.shared import node_ids as resolve
from schema.connections import Node
from schema.fields import ask

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
    node = ask(
        *POINT_READS,
        resolver=resolve.node,
        graphql_type=Node | None,
        description="Any object by its `id`, or null if there is none (any more).",
    )
    nodes = ask(
        *POINT_READS,
        resolver=resolve.nodes,
        graphql_type=list[Node | None],
        description="Objects by their ids, in the order of the ids; all are read together.",
    )
