"""The fields of followers of matches in the contract: their follows, devices and live activities."""

from datastore.model.access_patterns import Who
from tests.support.contract.pages import Again, Field, Owner

FOLLOWERS = (
    Field(
        "liveActivities",
        ("LA-2", Who.USER, {"Query"}),
        '{ liveActivities(userId: "ada") { nodes { status } } }',
        ["Query live-activities.userId-index"],
        owner=Owner.NAMED,
    ),
    # The match must be there, and the user must not have sessions of it on too many devices.
    Field(
        "registerLiveActivity",
        ("LA-3", Who.USER, {"GetItem", "Query", "UpdateItem"}),
        """mutation {
          registerLiveActivity(
            matchId: "m1", deviceId: "pad", input: {updateToken: "22222222222222222222222222222222"}
          ) { status }
        }""",
        ["GetItem cricket-fixtures", "Query live-activities", "UpdateItem live-activities"],
        missing="NOT_FOUND",
        again=Again.WRITTEN,
    ),
    Field(
        "updateLiveActivity",
        ("LA-4", Who.USER, {"UpdateItem"}),
        """mutation {
          updateLiveActivity(
            matchId: "m1", deviceId: "phone", input: {updateToken: "22222222222222222222222222222222"}
          ) { status }
        }""",
        ["UpdateItem live-activities"],
        missing="NOT_FOUND",
        again=Again.WRITTEN,
    ),
    Field(
        "endLiveActivity",
        ("LA-5", Who.USER, {"UpdateItem"}),
        'mutation { endLiveActivity(matchId: "m1", deviceId: "phone", input: {}) { status } }',
        ["UpdateItem live-activities"],
        missing="NOT_FOUND",
        order=2,
    ),
    Field(
        "suspendLiveActivity",
        ("LA-6", Who.SYSTEM, {"UpdateItem"}),
        'mutation { suspendLiveActivity(matchId: "m1", userId: "ada", deviceId: "phone") { status } }',
        ["UpdateItem live-activities"],
        missing="NOT_FOUND",
        again=Again.WRITTEN,
    ),
    Field(
        "device",
        ("DEV-1", Who.USER, {"Query"}),
        '{ device(userId: "ada") { platform } }',
        ["Query cricket-devices"],
        owner=Owner.NAMED,
    ),
    Field(
        "registerDevice",
        ("DEV-2", Who.USER, {"UpdateItem", "Query", "DeleteItem"}),
        """mutation {
          registerDevice(
            deviceToken: "22222222222222222222222222222222"
            input: {platform: IOS, osVersion: "26", appVersion: "3.0"}
          ) { platform }
        }""",
        ["DeleteItem cricket-devices", "Query cricket-devices", "UpdateItem cricket-devices"],
        again=Again.WRITTEN,
    ),
    Field(
        "updateDevice",
        ("DEV-3", Who.USER, {"GetItem", "UpdateItem"}),
        """mutation {
          updateDevice(
            deviceToken: "11111111111111111111111111111111"
            input: {pushToStartToken: "22222222222222222222222222222222"}
          ) { platform }
        }""",
        ["GetItem cricket-devices", "UpdateItem cricket-devices"],
        missing="NOT_FOUND",
        order=-3,
    ),
    Field(
        "deleteDevice",
        ("DEV-4", Who.USER, {"DeleteItem"}),
        'mutation { deleteDevice(deviceToken: "11111111111111111111111111111111") { platform } }',
        ["DeleteItem cricket-devices"],
        again=Again.NOTHING_THERE,
        order=-2,
    ),
    Field(
        "matchFollow",
        ("FOL-1", Who.USER, {"GetItem", "BatchGetItem"}),
        '{ matchFollow(matchId: "m1") { teamId } }',
        ["GetItem cricket-match-follows"],
    ),
    # The match is read first: the expiry of a follow depends on its start.
    Field(
        "followMatch",
        ("FOL-3", Who.USER, {"GetItem", "UpdateItem"}),
        'mutation { followMatch(matchId: "m1", input: {teamId: "20"}) { teamId } }',
        ["GetItem cricket-fixtures", "UpdateItem cricket-match-follows"],
        missing="NOT_FOUND",
        again=Again.WRITTEN,
    ),
    Field(
        "unfollowMatch",
        ("FOL-4", Who.USER, {"DeleteItem"}),
        'mutation { unfollowMatch(matchId: "m1") { teamId } }',
        ["DeleteItem cricket-match-follows"],
        again=Again.NOTHING_EITHER_TIME,
        order=3,
    ),
    Field(
        "updateMatchFollow",
        ("FOL-5", Who.USER, {"UpdateItem"}),
        'mutation { updateMatchFollow(matchId: "m1", input: {teamId: "20"}) { teamId } }',
        ["UpdateItem cricket-match-follows"],
        missing="NOT_FOUND",
        again=Again.WRITTEN,
    ),
    Field(
        "deleteMatchFollows",
        ("FOL-6", Who.SYSTEM, {"Query", "BatchWriteItem"}),
        'mutation { deleteMatchFollows(matchId: "m1") }',
        ["BatchWriteItem cricket-match-follows", "Query cricket-match-follows"],
        again=Again.NOTHING_THERE,
    ),
)
