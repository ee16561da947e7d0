"""Audiences: the members of a group that share the results of its events."""

from collections.abc import Callable, Iterable, MutableSet, Sequence
from typing import NamedTuple

import orjson

from server.documents.document_cache import PreparedOperation
from server.operations.request import Request
from server.subscriptions.event_execution import EventResult
from server.subscriptions.group_member import GroupMember, Rights, rights_of


class AudienceKey(NamedTuple):
    """The properties that are equal for all members of an audience."""

    document: str
    operation: str | None
    #: The variables as JSON. An object that is equal to no other, if the results are not shared.
    variables: object
    #: The rights, if results depend on them; otherwise an empty tuple.
    rights: Rights | tuple[()] | None


def audience_key(request: Request, *, is_personal: bool) -> AudienceKey:
    """Return the key of a request. `is_personal`: the results of the operation depend on the rights of the caller."""
    operation = request.operation
    rights = rights_of(request.caller.identity) if is_personal else ()
    return AudienceKey(operation.document.text, operation.name, _canonical_variables(request), rights)


def _canonical_variables(request: Request) -> object:
    if request.params.explain:
        return object()  # each caller receives its own report
    try:
        return orjson.dumps(request.params.variables or None, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # JSON libraries differ in the numbers that they accept
        return object()


class ResultAudience:
    """Members with the same operation and variables. They share the result of each event.

    If the results turn out to be personal, only members with the same rights share them, and `AudienceSet.split` moves
    the members to audiences of equal rights. The audience retains the compiled form of its operation.
    """

    __slots__ = ("is_personal", "key", "members", "operation")

    def __init__(self, key: AudienceKey, operation: PreparedOperation) -> None:
        self.key = key
        self.operation = operation
        self.members: dict[GroupMember, None] = {}
        self.is_personal = False
        operation.program.retain()

    def close(self) -> None:
        """Release the compiled form of the operation: the last member has left."""
        self.operation.program.release()

    @property
    def is_for_rights(self) -> bool:
        """Whether all members have the same rights, because the results depend on them."""
        return self.key.rights != ()


class AudienceSet:
    """The audiences of a group. `personal` has the operations whose results depend on the identity of the caller."""

    def __init__(self, personal: MutableSet[PreparedOperation]) -> None:
        self._personal = personal
        self._audiences: dict[AudienceKey, ResultAudience] = {}
        #: Whether `split` is due: an audience has members with different rights, although its results are personal.
        self.has_mixed = False

    def has(self, request: Request) -> bool:
        """Return whether a member has the operation and the variables of a request: they are valid then."""
        return audience_key(request, is_personal=request.operation in self._personal) in self._audiences

    def add(self, member: GroupMember) -> None:
        """Add a member to the audience of its operation and variables."""
        request = member.subscriber.request
        key = audience_key(request, is_personal=request.operation in self._personal)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = ResultAudience(key, request.operation)
        audience.members[member] = None
        member.audience = audience

    def remove(self, member: GroupMember) -> None:
        """Remove a member. The last one of an audience closes it."""
        audience = member.audience
        audience.members.pop(member, None)
        if not audience.members and self._audiences.get(audience.key) is audience:
            del self._audiences[audience.key]
            audience.close()

    def snapshot(self) -> list[tuple[ResultAudience, list[GroupMember]]]:
        """Return the audiences with their present members."""
        return [(audience, list(audience.members)) for audience in self._audiences.values()]

    def sharing(
        self, result: EventResult, members: Sequence[GroupMember]
    ) -> tuple[Sequence[GroupMember], list[GroupMember]]:
        """Return those `members` of an audience that share a result, and the others."""
        audience, rights = result.member.audience, result.member.rights
        if result.is_personal and not audience.is_personal:
            audience.is_personal = True
            self.has_mixed = self.has_mixed or not audience.is_for_rights
            self._personal.add(result.member.subscriber.request.operation)
        if not audience.is_personal or audience.is_for_rights:
            return members, []
        others = [member for member in members if member.rights != rights]
        return ([member for member in members if member.rights == rights], others) if others else (members, others)

    def split(self, is_busy: Callable[[ResultAudience], bool]) -> None:
        """Move the members of audiences with personal results to audiences of equal rights, unless one `is_busy`."""
        mixed = [each for each in self._audiences.values() if each.is_personal and not each.is_for_rights]
        for audience in mixed:
            if not is_busy(audience):
                for member in list(audience.members):
                    self.remove(member)
                    self.add(member)
        self.has_mixed = any(audience.members for audience in mixed)


def by_audience(members: Iterable[GroupMember]) -> dict[ResultAudience, list[GroupMember]]:
    """Return the members by their audiences, each list in the given order."""
    audiences: dict[ResultAudience, list[GroupMember]] = {}
    for member in members:
        audiences.setdefault(member.audience, []).append(member)
    return audiences
