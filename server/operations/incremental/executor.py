"""The executor of operations with active `@defer` and `@stream`: graphql-core's, with reads of list items in one batch.

graphql-core keeps these classes for internal use; their version is pinned.
"""

from asyncio import ensure_future
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from graphql import GraphQLError, GraphQLOutputType, GraphQLResolveInfo, located_error
from graphql.execution.collect_fields import DeferUsage, FieldDetailsList, GroupedFieldSet
from graphql.execution.executor import collect_iterator_awaitables, to_nodes
from graphql.execution.incremental import IncrementalExecutor, IncrementalPublisher
from graphql.execution.incremental.incremental_executor import DeliveryGroup, DeliveryGroupMap, ItemStream
from graphql.execution.incremental.stream_item_queue import StreamItemQueue
from graphql.execution.types import PendingResult
from graphql.pyutils import Path
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.operations.explain import FieldTracingExecutor

# The items of a streamed list that are executed before the client has received the previous ones.
ITEMS_AHEAD = 100


class DeliveryPlan:
    """The deferred fragments of an execution by the ids of their results, and the selected fields of objects."""

    def __init__(self) -> None:
        self._usages: dict[DeliveryGroup, DeferUsage] = {}
        #: The deferred fragments, by the ids of pending results.
        self.fragments: dict[str, DeferUsage] = {}
        #: The selected fields of each object that has deferred ones, by its path.
        self.fields: dict[tuple[str | int, ...], GroupedFieldSet] = {}

    def add_group(self, group: DeliveryGroup, usage: DeferUsage) -> None:
        """Add the fragment of a group that will be delivered."""
        self._usages[group] = usage

    def announce(self, id: str, node: DeliveryGroup | ItemStream) -> None:
        """Add the id of a pending result."""
        usage = self._usages.get(node) if isinstance(node, DeliveryGroup) else None
        if usage is not None:
            self.fragments[id] = usage


class GatewayIncrementalExecutor(StrawberryGraphQLCoreExecutionContext, IncrementalExecutor):
    """The executor. Deferred fragments begin after the first result, so that they do not delay it.

    All fragments that begin together share their batches of reads, and so do the items of a streamed list: graphql-core
    would execute one item after the other.
    """

    def __init__(self, *args: Any, plan: DeliveryPlan | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Filled during the execution if results are delivered by their paths.
        self.plan = plan

    def build_response(self, data: dict[str, Any] | None) -> Any:
        """Return the response. The publisher of an incremental one also announces its results to the plan."""
        work = self.get_incremental_work()
        if self.plan is None or not (work.tasks or work.streams):
            return super().build_response(data)
        errors = list(self.collected_errors.errors) or None
        return _Publisher(self.plan).build_response(cast("dict[str, Any]", data), errors, work, self)

    def get_new_delivery_group_map(
        self, new_defer_usages: Sequence[DeferUsage], delivery_group_map: DeliveryGroupMap | None, path: Path | None
    ) -> tuple[list[DeliveryGroup], DeliveryGroupMap]:
        """Return the new groups with a map to find all groups."""
        groups, found = super().get_new_delivery_group_map(new_defer_usages, delivery_group_map, path)
        if self.plan is not None:
            for usage, group in zip(new_defer_usages, groups, strict=True):
                self.plan.add_group(group, usage)
        return groups, found

    def execute_collected_root_fields(
        self,
        root_type: Any,
        root_value: Any,
        grouped_field_set: GroupedFieldSet,
        serially: bool,
        new_defer_usages: Sequence[DeferUsage],
    ) -> Any:
        """Execute the fields of the root."""
        if self.plan is not None and new_defer_usages:
            self.plan.fields[()] = grouped_field_set
        return super().execute_collected_root_fields(
            root_type, root_value, grouped_field_set, serially, new_defer_usages
        )

    def execute_collected_subfields(
        self,
        parent_type: Any,
        source_value: Any,
        path: Path,
        grouped_field_set: GroupedFieldSet,
        new_defer_usages: Sequence[DeferUsage],
        delivery_group_map: DeliveryGroupMap | None,
    ) -> Any:
        """Execute the fields of an object."""
        if self.plan is not None and (new_defer_usages or delivery_group_map is not None):
            self.plan.fields[tuple(path.as_list())] = grouped_field_set
        return super().execute_collected_subfields(
            parent_type, source_value, path, grouped_field_set, new_defer_usages, delivery_group_map
        )

    def build_stream_item_queue(
        self,
        initial_index: int,
        stream_path: Path,
        iterator: Iterator[Any] | AsyncIterator[Any],
        field_details_list: FieldDetailsList,
        info: GraphQLResolveInfo[Any],
        item_type: GraphQLOutputType,
        is_async: bool,
    ) -> StreamItemQueue:
        """Return the queue of a streamed list, which executes up to `ITEMS_AHEAD` items at once."""
        if is_async:
            return super().build_stream_item_queue(
                initial_index, stream_path, iterator, field_details_list, info, item_type, is_async
            )
        items = cast("Iterator[Any]", iterator)

        async def produce(queue: StreamItemQueue) -> None:
            try:
                for index, item in enumerate(items, initial_index):
                    item_path = stream_path.add_key(index, None)
                    executor = self.create_sub_executor()
                    result: Any = executor.complete_stream_item(item_path, item, field_details_list, info, item_type)
                    await queue.push(ensure_future(result) if self.is_awaitable(result) else result)
            except GraphQLError:
                raise
            except Exception as error:
                raise located_error(error, to_nodes(field_details_list), stream_path.as_list()) from error

        def on_abort(_reason: BaseException | None) -> None:
            self.track_async_work(collect_iterator_awaitables(items, self.is_awaitable))

        return StreamItemQueue(produce, on_abort, capacity=ITEMS_AHEAD)


class ExplainedIncrementalExecutor(FieldTracingExecutor, GatewayIncrementalExecutor):
    """The executor of explained operations: it traces each field."""


class _Publisher(IncrementalPublisher):
    """A publisher that announces the ids of pending results to a plan."""

    def __init__(self, plan: DeliveryPlan) -> None:
        super().__init__()
        self._plan = plan

    def _to_pending_results(
        self, new_groups: Sequence[DeliveryGroup], new_streams: Sequence[ItemStream]
    ) -> list[PendingResult]:
        results = super()._to_pending_results(new_groups, new_streams)
        nodes: list[DeliveryGroup | ItemStream] = [*new_groups, *new_streams]
        for result, node in zip(results, nodes, strict=True):
            self._plan.announce(result.id, node)
        return results
