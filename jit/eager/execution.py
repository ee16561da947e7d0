"""Eager execution: pending fields, errors, and the nulls that errors cause."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from graphql import ExecutionResult, GraphQLError, located_error

from jit.completion import complete_async, complete_awaited, unchanged
from jit.eager.coroutine_driver import CoroutineDriver
from jit.execution import Execution
from jit.field_plan import FieldPlan, Finish, Path, Select, keys_of, lies_in


class PendingField(CoroutineDriver):
    """A field whose value is awaited. The object is also the placeholder of the value in the response (`out[path[1]]`).

    `items` are the received items of an asynchronous list. `followers` are other fields that share the value. They find
    this object as `shared[shared_key]`.
    """

    __slots__ = (
        "depth",
        "finish",
        "followers",
        "is_abandoned",
        "items",
        "out",
        "path",
        "plan",
        "run",
        "shared",
        "shared_key",
    )
    items: list[Any]
    shared: dict[Hashable, Any]
    shared_key: Hashable

    def __init__(
        self, run: "EagerExecution", plan: FieldPlan, awaitable: Any, path: Path, depth: int, finish: Finish
    ) -> None:
        CoroutineDriver.__init__(self, awaitable, run.loop)
        self.run = run
        self.plan = plan
        self.path = path
        self.depth = depth
        self.finish = finish
        self.out: Any = None
        self.is_abandoned = False
        self.followers: list[Follower] | None = None

    def on_done(self, error: BaseException | None) -> None:
        """Replace the placeholder by the completed value, or by null."""
        run, shared_value = self.run, None
        if self.followers is not None:
            shared_value = self._publish(error)
        if self.is_abandoned:
            pass
        elif error is None:
            finish = self.finish if shared_value is None else shared_value.finish
            try:
                value = finish(run, self.plan, self.value, self.path, complete_awaited)
            except BaseException as problem:  # a nested awaitable may have been cancelled already
                run.fail(problem, self.plan, self.path, self.depth, self.out)
            else:
                self.out[self.path[1]] = value
                if value.__class__ is PendingField:
                    value.out = self.out
        else:
            run.fail(error, self.plan, self.path, self.depth, self.out)
        if self.followers:
            self._complete_followers(shared_value, error)
        live = run.live
        live.discard(self)
        if not live and run.idle is not None and not run.idle.done():
            run.idle.set_result(None)

    def _publish(self, error: BaseException | None) -> "SharedValue | None":
        """Publish the shared value. On an error forget it, so that the next field resolves it again."""
        if error is not None:
            self.forget()
            return None
        shared_value = SharedValue(self.value)
        if self.shared.get(self.shared_key) is self:
            self.shared[self.shared_key] = shared_value
        return shared_value

    def _complete_followers(self, shared_value: "SharedValue | None", error: BaseException | None) -> None:
        """Complete the followers in order. An error of one may abandon others, which leaves them out of the list."""
        run, followers = self.run, self.followers
        assert followers is not None, "The caller has checked for followers."
        followers.reverse()
        while followers:
            plan, out, around = followers.pop()
            if shared_value is not None:
                value = shared_value.completed.get(plan.equality_key)
                if value is None:
                    path = (around, plan.key)
                    try:
                        value = shared_value.complete(run, plan, path)
                    except BaseException as problem:
                        run.fail(problem, plan, path, 0, out)
                        continue
                    if value.__class__ is PendingField:
                        value.out = out
                out[plan.key] = value
            else:
                run.fail(error, plan, (around, plan.key), 0, out)

    def abandon(self, place: Path | None) -> bool:
        """Abandon the value for the fields inside `place`, or for all fields. Return whether no field waits for it."""
        changed = place is None or lies_in(self.path, place)
        if changed:
            self.is_abandoned = True
        if self.followers:
            waiting = [] if place is None else [each for each in self.followers if not lies_in(each[2], place)]
            changed = changed or len(waiting) < len(self.followers)
            self.followers[:] = waiting
        return changed and self.is_abandoned and not self.followers

    def forget(self) -> None:
        """Accept no further followers."""
        if self.followers is not None and self.shared.get(self.shared_key) is self:
            del self.shared[self.shared_key]


# A field that shares a pending value, the object to which the value belongs, and the path of that object.
Follower = tuple[FieldPlan, dict[str, Any], Path | None]


class SharedValue:
    """A resolved value that several fields share, with its completed form for each `FieldPlan.equality_key`."""

    __slots__ = ("completed", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.completed: dict[object, Any] = {}

    def complete(self, run: "EagerExecution", plan: FieldPlan, path: Path) -> Any:
        """Complete the value at a path. `completed` caches the results that are valid at any path."""
        errors = len(run.errors)
        result = plan.finish(run, plan, self.value, path, complete_awaited)
        if plan.equality_key is None or result.__class__ is not dict or len(run.errors) > errors:
            return result
        # A pending field may fail, and its error has to be reported at every path.
        if not any(value.__class__ is PendingField for value in result.values()):
            self.completed[plan.equality_key] = result
        return result

    def finish(self, run: "EagerExecution", plan: FieldPlan, _value: Any, path: Path, _otherwise: Any) -> Any:
        """Do what `FieldPlan.finish` does, with the shared value."""
        return self.complete(run, plan, path)


class EagerExecution(Execution):
    """The state of one execution of an operation, with its `data` so far."""

    __slots__ = ("data", "failed_at_once", "idle", "interruption", "is_nulled", "live", "loop", "shared")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.data: dict[str, Any] | None = None
        # The latest exception that an awaitable raised in its first step.
        self.failed_at_once: Exception | None = None
        self.live: set[PendingField] = set()
        # Shared values, or their pending fields, by group of fields and by the value of the attribute that they share.
        self.shared: defaultdict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        self.idle: asyncio.Future[None] | None = None
        self.interruption: BaseException | None = None
        self.is_nulled = False
        self.loop: Any = asyncio.get_running_loop()

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
        if self.live:
            self.abandon(path)

    def abandon(self, path: Path | None = None) -> None:
        """Cancel the pending fields inside this place, or all pending fields."""
        abandoned = [waiting for waiting in self.live if waiting.abandon(path)]
        for waiting in abandoned:
            waiting.forget()
            waiting.cancel()

    def interrupt(self, error: BaseException | None) -> None:
        """Cancel the execution, because a resolver was cancelled or the process ends."""
        if self.interruption is None:
            self.interruption = error
        self.abandon()

    def start_shared(
        self, plan: FieldPlan, shared: dict[Hashable, Any], of: Hashable, awaitable: Any, path: Path
    ) -> Any:
        """Do what `start` does, and share the value with other fields as `shared[of]`: resolved, or pending."""
        waiting = PendingField(self, plan, awaitable, path, 0, plan.finish)
        try:
            if waiting.first_step():
                waiting.shared, waiting.shared_key, waiting.followers = shared, of, []
                shared[of] = waiting
                self.live.add(waiting)
                return waiting
            shared_value = shared[of] = SharedValue(waiting.value)
            return shared_value.complete(self, plan, path)
        except Exception as error:
            self.failed_at_once = error
            raise

    async def wait_until_idle(self) -> None:
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

    def result(self) -> ExecutionResult:
        self.failed_at_once = None  # its frames reference this execution
        return ExecutionResult(self.data, self.errors or None)

    async def wait_for_result(self) -> ExecutionResult:
        await self.wait_until_idle()
        return self.result()

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
        await self.wait_until_idle()
        for root in rest:
            if self.is_nulled:
                break
            self._root(root)
            await self.wait_until_idle()
        return self.result()

    def _root(self, root: Select) -> None:
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
            return
        self.data.update(part)
        adopt_all(self.data, part.values())


def adopt_all(out: dict[str, Any], values: Iterable[Any]) -> None:
    """Set `out` as the object of the pending fields among the values."""
    for value in values:
        if value.__class__ is PendingField:
            value.out = out


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
