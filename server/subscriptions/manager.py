"""The start of subscriptions.

Subscriptions with the same field and arguments share the stream of their source (`broadcast_group`), and those with the
same operation and variables the execution of each event (`audience`). Others have a group of their own.
"""

import asyncio
from collections.abc import AsyncIterable, Coroutine
from secrets import token_bytes
from typing import Any
from weakref import WeakSet

from graphql import ExecutionResult
from graphql.execution import Executor, create_source_event_stream

from datastore.change_streams.replay.signed_resume_ids import ResumeIds, ResumeRequest
from datastore.change_streams.subscriptions.event_source import EventSource, source_of
from datastore.errors import DomainError
from server.admission.callers import payer
from server.admission.quotas import KeyedQuota
from server.documents.document_cache import PreparedOperation
from server.operations.billing import refusal
from server.operations.context import OperationContext
from server.operations.execution import executor_of, selection_outcome
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.operations.request import Request
from server.operations.runner import Runner
from server.subscriptions.broadcast_group import BroadcastGroup
from server.subscriptions.group_member import GroupMember, Rights, rights_of
from server.subscriptions.result_stream import ResultStream
from server.subscriptions.resume_bindings import binding_of, resume_of, stream_key
from server.subscriptions.subscriber import ENDED, Listener, Subscriber, SubscriptionHandle

# The key of a stream, and the rights of the callers that may join; an empty tuple for any caller.
_GroupKey = tuple[bytes, Rights | tuple[()] | None]


class SubscriptionManager:
    """The subscriptions of a process, within a `quota` and the load limit of the `runner`.

    Without `resume_ids` a subscription can be resumed in this process only. For a consumer that requests each result,
    at most `max_queued_bytes` are queued; 0 means no limit.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        quota: KeyedQuota | None = None,
        resume_ids: ResumeIds | None = None,
        max_queued_bytes: int = 0,
    ) -> None:
        self._runner = runner
        self._billing = runner.billing
        self._quota = quota or KeyedQuota("subscriptions", 0, 0)
        self._ids = resume_ids or ResumeIds(token_bytes())
        self._max_queued_bytes = max_queued_bytes
        # The groups that equal subscriptions can join.
        self._groups: dict[_GroupKey, BroadcastGroup] = {}
        self._personal: WeakSet[PreparedOperation] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Wait until the ended subscriptions are settled and reported."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def follow(self, request: Request, listener: Listener) -> SubscriptionHandle:
        """Deliver the results to `listener` until the subscription ends or is stopped.

        The subscription runs when this returns. Before that, only an error is delivered.
        """
        subscriber = Subscriber(self._billing, self._quota, request)
        try:
            joined = await self._join(subscriber, listener)
        except DomainError as error:
            joined = refusal(error)
        except Exception as error:
            joined = failure(error)
        except BaseException:
            await subscriber.end()
            raise
        if isinstance(joined, GroupMember):
            return joined
        subscriber.note(joined)
        await subscriber.end()
        if joined.is_failure:
            listener.finish(joined)
        else:
            listener.deliver(joined, None)
            listener.finish(None)
        return ENDED

    def stream(self, request: Request) -> ResultStream:
        """Return the results for a consumer that requests one after the other. The subscription begins with the first.

        The caller closes the stream, which releases the source.
        """
        resume_after = request.params.resume_after
        return ResultStream(
            lambda listener: self.follow(request, listener),
            resume_after if isinstance(resume_after, str) else None,
            self._max_queued_bytes,
        )

    async def _join(self, subscriber: Subscriber, listener: Listener) -> GroupMember | Outcome:
        """Join the group of the request, or a new one. Return the member, or the outcome of a failed start."""
        request = subscriber.request
        resume = resume_of(request, self._ids)
        subscriber.take_quota()
        async with self._runner.load.slot(payer(request.caller)):
            await subscriber.admit()
            group = await self._existing_or_new_group(subscriber, resume)
        if isinstance(group, Outcome):
            group.allowance = subscriber.allowance
            return group
        if resume is not None:
            group.source.check_resume(resume)
        return group.join(subscriber, listener, resume)

    async def _existing_or_new_group(
        self, subscriber: Subscriber, resume: ResumeRequest | None
    ) -> BroadcastGroup | Outcome:
        """Return the group of a request, or the outcome of errors in its variables or of its resolver."""
        request = subscriber.request
        key = None if request.params.explain else stream_key(request)
        group = self._group_of(request, key)
        if group is not None and group.has_audience(request):
            return group
        executor = self._executor(request)
        if isinstance(executor, Outcome):
            return executor
        return group or await self._create_group(subscriber, executor, key, resume)

    def _executor(self, request: Request) -> Executor[Any] | Outcome:
        """Return graphql-core's executor of a request, or the outcome of errors in its variables."""
        documents = self._runner.documents
        executor = executor_of(request).build(
            documents.schema,
            request.operation.document.node,
            raw_variable_values=request.params.variables,
            operation_name=request.operation.name,
            hide_suggestions=documents.hides_suggestions,
        )
        return selection_outcome(ExecutionResult(None, executor)) if isinstance(executor, list) else executor

    async def _create_group(
        self, subscriber: Subscriber, executor: Executor[Any], key: bytes | None, resume: ResumeRequest | None
    ) -> BroadcastGroup | Outcome:
        """Call the resolver, and return a group for its source, or the outcome of the resolver's errors.

        Return the existing group if an equal subscription has begun in the meantime.
        """
        request = subscriber.request
        context = executor.context_value = self._billing.open_context(request)
        group: BroadcastGroup | None = None
        try:
            source = await _source(executor)
            if isinstance(source, ExecutionResult):
                outcome = selection_outcome(source)
                self._billing.explain(request, outcome, context.meter)
                return outcome
            existing = self._group_of(request, key)
            if existing is not None:
                return existing
            if resume is not None:
                source.check_resume(resume)
            group = self._new_group(request, source, context, key if source.is_shared else None, resume)
            return group
        finally:
            if group is None:
                context.close()
                subscriber.measure(context.meter)

    def _group_of(self, request: Request, key: bytes | None) -> BroadcastGroup | None:
        if key is None:
            return None
        return self._groups.get((key, ())) or self._groups.get((key, rights_of(request.caller.identity)))

    def _new_group(
        self,
        request: Request,
        source: EventSource[Any],
        context: OperationContext,
        key: bytes | None,
        resume: ResumeRequest | None,
    ) -> BroadcastGroup:
        """Return a new group, which equal subscriptions can join unless `key` is None."""
        is_public = key is not None and not context.used_identity
        group_key = None if key is None else (key, () if is_public else rights_of(request.caller.identity))

        def forget(group: BroadcastGroup) -> None:
            if group_key is not None and self._groups.get(group_key) is group:
                del self._groups[group_key]

        group = BroadcastGroup(
            self._runner,
            source,
            context,
            seal=self._ids.sealer(binding_of(request)),
            resume=resume if key is None else None,
            is_public=is_public,
            personal=self._personal,
            spawn=self._spawn,
            forget=forget,
        )
        if group_key is not None:
            self._groups[group_key] = group
        return group

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _source(executor: Executor[Any]) -> EventSource[Any] | ExecutionResult:
    """Call the resolver of the subscription's field. Return its source, or the errors."""
    try:
        events: Any = create_source_event_stream(executor)
        events = await events if executor.is_awaitable(events) else events
    except asyncio.CancelledError as cancelled:
        raise translate_cancellation(cancelled) from None
    if isinstance(events, EventSource | ExecutionResult):
        return events
    assert isinstance(events, AsyncIterable), "graphql-core has checked it."
    return source_of(events)
