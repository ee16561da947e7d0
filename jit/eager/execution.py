"""Eager execution: what waits, errors, and the nulls that errors cause."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from graphql import ExecutionResult, GraphQLError, located_error

from jit.completion import complete_async, complete_awaited, unchanged
from jit.eager.batches import PendingBatch, SharedValue, Sharing, WaitingByKey, new_waiting, start_batches
from jit.eager.pending_field import PendingField
from jit.execution import Execution
from jit.field_plan import FieldPlan, Finish, Path, Select, keys_of


class EagerExecution(Execution):
    """The state of one execution of an operation, with its `data` so far."""

    __slots__ = (
        "batches",
        "data",
        "failed_at_once",
        "idle",
        "interruption",
        "is_nulled",
        "live",
        "loop",
        "nulled",
        "shared",
    )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.data: dict[str, Any] | None = None
        # The latest exception that an awaitable raised in its first step.
        self.failed_at_once: Exception | None = None
        self.live: set[PendingField | PendingBatch] = set()
        #: The fields that wait for a call of their batch's function, by what shares values, and by key.
        self.batches: defaultdict[Sharing, WaitingByKey] = defaultdict(new_waiting)
        #: The values that batches have returned, or are to return, by key.
        self.shared: dict[Sharing, dict[Hashable, SharedValue]] = {}
        #: The places that errors set to null, by identity. None is the whole data.
        self.nulled: dict[int, Path | None] = {}
        self.idle: asyncio.Future[None] | None = None
        self.interruption: BaseException | None = None
        self.is_nulled = False
        try:
            self.loop: Any = asyncio.get_running_loop()
        except RuntimeError:
            self.loop = None

    @property
    def can_start(self) -> bool:
        return self.loop is not None

    # Waiting

    def start(
        self,
        plan: FieldPlan,
        awaitable: Any,
        path: Path,
        depth: int = 0,
        finish: Finish | None = None,
        out: Any = None,
    ) -> Any:
        """Start an awaitable. Return the completed value if it need not wait, otherwise its placeholder in `out`."""
        waiting = PendingField(self, plan, awaitable, path, depth, finish or plan.finish)
        try:
            if waiting.first_step():
                waiting.out = out
                self.live.add(waiting)
                return waiting
            return waiting.finish(self, plan, waiting.value, path, complete_awaited)
        except Exception as error:
            self.failed_at_once = error
            raise

    def start_list(self, plan: FieldPlan, depth: int, iterator: Any, path: Path) -> Any:
        """Start to complete the items of an asynchronous iterator. Return the list, or its placeholder."""
        items: list[Any] = []
        waiting = self.start(plan, complete_async(self, plan, depth, items, iterator, path), path, depth, unchanged)
        if waiting.__class__ is PendingField:
            waiting.items = items
        return waiting

    def adopted(self, value: Any, out: Any, _plan: FieldPlan, _path: Path, _depth: int) -> Any:
        """Return a value. If it is a placeholder, `out` is the object or list that has it."""
        if value.__class__ is PendingField:
            value.out = out
        return value

    def joined(self, values: Any) -> Any:
        """Return the object or list, with its placeholders."""
        return values

    def discard(self, _values: Iterable[Any], rest: Iterable[Any], error: Exception) -> None:
        """Discard the remaining items of a list that an error nulls: close coroutines, and ignore failures.

        As in graphql-core, futures among the items are cancelled only if the failed item was awaited.
        """
        was_awaited = self.failed_at_once in (error, getattr(error, "original_error", None))
        with suppress(Exception):
            for item in rest:
                if asyncio.iscoroutine(item):
                    item.close()
                elif isinstance(item, asyncio.Future):
                    item.add_done_callback(_retrieve_error)
                    if was_awaited:
                        item.cancel()

    def fail(self, error: BaseException | None, plan: FieldPlan, path: Path, depth: int, out: Any) -> None:
        """Handle the error of an awaited value: null its place in `out`, or the nearest nullable place around it."""
        if not isinstance(error, Exception):
            self.interrupt(error)
            return
        located = located_error(error, plan.nodes(self.variables), keys_of(path))
        if plan.required[depth]:
            self._null_around(located, plan, depth, path)
        else:
            out[path[1]] = None
            self.add_error(located, path)

    def _null_around(self, error: GraphQLError, plan: FieldPlan | None, depth: int, path: Any) -> None:
        """Set the nearest nullable place around `path` to null."""
        while plan is not None:
            path = path[0]
            if depth:
                depth -= 1
            else:
                plan = plan.parent
                depth = plan.depth if plan is not None else 0
            if plan is not None and not plan.required[depth]:
                break
        if plan is None:
            self.null_all(error)
        elif self._put_null(keys_of(path)):
            self.add_error(error, path)

    def null_all(self, error: GraphQLError) -> None:
        """Set the whole data to null, because a non-null field of the root failed."""
        self.data = None
        self.is_nulled = True
        self.add_error(error, None)

    def _put_null(self, keys: list[str | int]) -> bool:
        """Set a place to null. Return False if it, or a place around it, is null already."""
        place: Any = self.data
        if place is None:
            return False
        for key in keys[:-1]:
            place = place[key]
            if place is None:
                return False
            if place.__class__ is PendingField:
                place = place.items
        if place[keys[-1]] is None:
            return False
        place[keys[-1]] = None
        return True

    def add_error(self, error: GraphQLError, path: Path | None) -> None:
        """Add an error that set this place to null. Abandon the pending fields inside the place."""
        self.errors.append(error)
        self.abandon(path)

    def abandon(self, path: Path | None = None) -> None:
        """Cancel what waits for fields inside this place alone, or everything that waits."""
        self.nulled[id(path)] = path
        abandoned = [waiting for waiting in self.live if waiting.abandon() or path is None]
        for waiting in abandoned:
            waiting.cancel()

    def lies_in_null(self, path: Path | None) -> bool:
        """Return whether an error set this place, or one around it, to null. Nested paths share their prefix."""
        nulled = self.nulled
        while id(path) not in nulled:
            if path is None:
                return False
            path = path[0]
        return True

    def interrupt(self, error: BaseException | None) -> None:
        """Cancel the execution, because a resolver was cancelled or the process ends."""
        if self.interruption is None:
            self.interruption = error
        self.abandon()

    def end(self, waiting: PendingField | PendingBatch) -> None:
        """End a wait. Start the batches for which its completed values wait."""
        if self.batches:
            start_batches(self)
        live = self.live
        live.discard(waiting)
        if not live and self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    async def wait_for_result(self) -> ExecutionResult:
        """Wait until no field is pending. If this is cancelled, cancel the pending fields and wait for them."""
        while self.live:
            self.idle = self.loop.create_future()
            try:
                await self.idle
            except asyncio.CancelledError:
                self.abandon()
                while self.live:
                    self.idle = self.loop.create_future()
                    await self.idle
                raise
        if self.interruption is not None:
            raise self.interruption
        return self.result()

    def result(self) -> ExecutionResult:
        self.failed_at_once = None  # its frames reference this execution
        return ExecutionResult(self.data, self.errors or None)

    # Running

    def run(self, roots: Sequence[Select], *, serially: bool) -> ExecutionResult | Awaitable[ExecutionResult]:
        """Execute the operation. Return the result, or an awaitable if a field has to wait."""
        if not roots:
            self.data = {}
        rest = iter(roots)
        for root in rest:
            self._root(root)
            if self.is_nulled:
                break
            if serially and self.live:
                return self._run_serially(rest)
        return self.wait_for_result() if self.live else self.result()

    async def _run_serially(self, rest: Iterator[Select]) -> ExecutionResult:
        await self.wait_for_result()
        for root in rest:
            if self.is_nulled:
                break
            self._root(root)
            await self.wait_for_result()
        return self.result()

    def _root(self, root: Select) -> None:
        if self.shared:
            self.shared.clear()  # a previous mutation of the operation may have changed the values
        try:
            part = root(self, self.root, None)
        except GraphQLError as error:
            self.null_all(error)
            return
        except BaseException:
            self.abandon()
            raise
        if self.data is None:
            self.data = part
        else:
            self.data.update(part)
            adopt_all(self.data, part.values())
        self.start_root_batches()

    def start_root_batches(self) -> None:
        """Start the batches for which the fields of the root wait. Raises the exception that interrupts one of them."""
        if self.batches:
            start_batches(self)
            if self.interruption is not None:
                raise self.interruption


async def run_in_task(
    plan: FieldPlan, resolve: Callable[[EagerExecution, Any, Path], Awaitable[Any]], run: EagerExecution
) -> ExecutionResult:
    """Execute an operation whose only root field is a coroutine, which `resolve` creates, in the current task."""
    path = (None, plan.key)
    try:
        try:
            value = plan.finish(run, plan, await resolve(run, run.root, path), path, complete_awaited)
        except Exception as error:
            value = run.handle_error(error, plan, path)
    except GraphQLError as error:
        run.null_all(error)
    except BaseException:
        run.abandon()
        raise
    else:
        run.data = {plan.key: value}
        adopt_all(run.data, (value,))
    run.start_root_batches()
    return await run.wait_for_result() if run.live else run.result()


def adopt_all(out: dict[str, Any], values: Iterable[Any]) -> None:
    """Set `out` as the object of the pending fields among the values."""
    for value in values:
        if value.__class__ is PendingField:
            value.out = out


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
