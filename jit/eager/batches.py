"""Batches: one call of a function resolves a field for many objects.

The fields wait while a value, such as a list, is completed as far as possible. Then the function is called with their
keys. Fields with the same function and key share the value of the key, also later ones. A field with arguments shares
only with itself, for other parents: their arguments are the same.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from jit.completion import complete_awaited
from jit.eager.coroutine_driver import CoroutineDriver
from jit.eager.pending_field import PendingField
from jit.field_plan import FieldPlan, Path
from jit.field_resolvers import keywords

if TYPE_CHECKING:
    from jit.eager.execution import EagerExecution

# The fields that share their values by key: those of a function (see `field_resolvers.Batch`), or one with arguments.
Sharing = Callable[..., Any] | FieldPlan
# A field that waits for its value, the object to which the value belongs, and the path of that object.
Waiting = tuple[FieldPlan, dict[str, Any], Path | None]
WaitingByKey = defaultdict[Hashable, list[Waiting]]
# The fields of one key wait in a list.
new_waiting: Callable[[], WaitingByKey] = partial(defaultdict, list)


#: The placeholder of a field that waits for its batch.
WAITING = object()


class SharedValue:
    """The value of a key, with its completed form for each `FieldPlan.equality_key`.

    `waiting` are the fields that wait for the value, None once it is known.
    """

    __slots__ = ("completed", "value", "waiting")

    def __init__(self, waiting: list[Waiting] | None) -> None:
        self.waiting = waiting
        self.value: Any = None
        self.completed: dict[object, Any] = {}

    def complete(self, run: "EagerExecution", fields: list[Waiting]) -> None:
        """Complete the value for each of the fields."""
        completed, nulled = self.completed, run.nulled
        for plan, out, around in fields:
            if nulled and run.lies_in_null(around):
                continue
            shape = plan.equality_key
            value = completed.get(shape) if shape is not None else None
            if value is None:
                before = len(run.errors) + len(run.live) if shape is not None else 0
                path = around, plan.key
                try:
                    value = plan.finish(run, plan, self.value, path, complete_awaited)
                except BaseException as problem:  # a nested awaitable may have been cancelled already
                    run.fail(problem, plan, path, 0, out)  # the same path: what waits inside it is abandoned
                    continue
                if value.__class__ is PendingField:
                    value.out = out
                # An error, also of a pending field, has to be reported at every path.
                elif shape is not None and value.__class__ is dict and before == len(run.errors) + len(run.live):
                    completed[shape] = value
            out[plan.key] = value


class PendingBatch(CoroutineDriver):
    """A call of a batch function for the keys of `values`, which are `shared` with later fields."""

    __slots__ = ("is_abandoned", "run", "shared", "values")

    def __init__(
        self,
        run: "EagerExecution",
        values: dict[Hashable, SharedValue],
        shared: dict[Hashable, SharedValue],
        arguments: dict[str, Any],
    ) -> None:
        waiting = next(iter(values.values())).waiting
        assert waiting, "A value is missing because a field waits for it."
        plan, _, around = waiting[0]
        info = plan.resolver.info_class(run, plan, (around, plan.key))
        CoroutineDriver.__init__(self, _called(plan.resolver.batch.function, [*values], info, arguments), run.loop)
        self.run = run
        self.values = values
        self.shared = shared
        self.is_abandoned = False
        run.live.add(self)
        try:
            waits = self.first_step()
        except BaseException as error:
            self.on_done(error)
        else:
            if not waits:
                self.on_done(None)

    def on_done(self, error: BaseException | None) -> None:
        """Complete the value of each key for the fields that wait for it, or report its error at each of them."""
        run = self.run
        run.live.discard(self)  # an error below must not abandon the batch whose fields are completed
        results = [error] * len(self.values) if error is not None else self.value
        for (key, shared), result in zip(self.values.items(), results, strict=True):
            fields, shared.waiting = shared.waiting or [], None
            if not isinstance(result, BaseException):
                shared.value = result
                shared.complete(run, fields)
                continue
            self._forget(key)  # the next field resolves it again
            for plan, out, around in fields:
                if not run.lies_in_null(around):
                    run.fail(result, plan, (around, plan.key), 0, out)
        run.end(self)

    def abandon(self) -> bool:
        """Return whether no field waits for a value any more, for the first time. Then accept no further fields."""
        run = self.run
        if self.is_abandoned:
            return False
        for shared in self.values.values():
            for _, _, around in shared.waiting or ():
                if not run.lies_in_null(around):
                    return False
        self.is_abandoned = True
        for key in self.values:
            self._forget(key)
        return True

    def _forget(self, key: Hashable) -> None:
        if self.shared.get(key) is self.values[key]:
            del self.shared[key]


def start_batches(run: "EagerExecution") -> None:
    """Call the functions for which fields wait, also those for which fields begin to wait meanwhile."""
    batches = run.batches
    while batches:
        sharing = next(iter(batches))
        waiting = batches.pop(sharing)
        arguments: dict[str, Any] = {}
        if sharing.__class__ is FieldPlan:
            try:
                arguments = _arguments(run, sharing, waiting)
            except Exception as error:
                _fail_all(run, waiting, error)
                continue
        _start(run, sharing, waiting, arguments)


def _arguments(run: "EagerExecution", plan: FieldPlan, waiting: WaitingByKey) -> dict[str, Any]:
    """Return the arguments of a field, converted once for all its parents."""
    _, _, around = next(iter(waiting.values()))[0]
    return keywords(run, plan, (around, plan.key))


def _fail_all(run: "EagerExecution", waiting: WaitingByKey, error: Exception) -> None:
    """Report an error at each of the fields."""
    for fields in waiting.values():
        for plan, out, around in fields:
            if not run.lies_in_null(around):
                run.fail(error, plan, (around, plan.key), 0, out)


def _start(run: "EagerExecution", sharing: Sharing, waiting: WaitingByKey, arguments: dict[str, Any]) -> None:
    shared = run.shared.get(sharing)
    if shared is None:
        shared = run.shared[sharing] = {None: SharedValue(None)}  # the key None has the value None
    missing: dict[Hashable, SharedValue] = {}
    known: list[tuple[SharedValue, list[Waiting]]] = []
    for key, fields in waiting.items():
        value = shared.get(key)
        if value is None:
            if run.nulled and all(run.lies_in_null(around) for _, _, around in fields):
                continue
            missing[key] = shared[key] = SharedValue(fields)
        elif value.waiting is None:
            known.append((value, fields))
        else:
            value.waiting += fields
    if missing:
        PendingBatch(run, missing, shared, arguments)
    for value, fields in known:
        value.complete(run, fields)


async def _called(function: Callable[..., Any], keys: list[Any], info: Any, arguments: dict[str, Any]) -> Any:
    values = await function(keys, info, **arguments)
    if len(values) != len(keys):
        raise TypeError(f"{function.__name__} returned {len(values)} values for {len(keys)} keys.")
    return values
