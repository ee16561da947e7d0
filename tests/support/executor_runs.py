"""Runs one operation with one executor in a random world, and records everything that is observable."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, NamedTuple

from graphql import DocumentNode, ExecutionResult, execute, subscribe
from graphql.execution import ExecutionHooks, Executor

from tests.support.random_schemas import Info, RandomSchema
from tests.support.random_values import Temper, Values, source_of
from tests.support.virtual_time import Stuck, in_virtual_time

Path = tuple[str | int, ...]

# As many turns of the loop as a resolver takes that awaits nothing else.
TURNS = 25


@dataclass(frozen=True)
class ResolverCall:
    """A call of a resolver: its event, path, turn and arguments."""

    event: int
    path: Path
    when: float
    details: tuple[Any, ...]


@dataclass
class ExecutedOperation:
    """An operation with its variables and the options of the execution."""

    text: str
    document: DocumentNode
    variables: dict[str, Any]
    name: str | None
    kind: str
    options: dict[str, Any] = field(default_factory=dict)


class ErrorFacts(NamedTuple):
    """The facts of an error that clients and logs show, with its position even if the error carries another path."""

    message: str
    path: Path
    locations: tuple[tuple[int, int], ...]
    original: str
    extensions: str
    kind: str
    position: Path


@dataclass
class Result:
    data: Any
    errors: list[ErrorFacts] | None


@dataclass
class ObservedRun:
    """The observations of a run: one result per event, the calls in their order, and what was left behind."""

    results: list[Result] = field(default_factory=list)
    raised: str | None = None
    at_once: bool = False  # nothing was awaited
    calls: list[ResolverCall] = field(default_factory=list)
    finished: float = 0
    unfinished: set[str] = field(default_factory=set)  # resolvers that still run when the result is there
    tasks: int = 0
    # The same after some turns of the loop. No executor cancels the items of a list that is null, and an executor that
    # is
    # faster with the rest may not be blamed for them.
    staying: set[str] = field(default_factory=set)
    staying_tasks: int = 0
    batches: int = 0
    hooks: int = 0
    complaints: list[str] = field(default_factory=list)  # coroutines never awaited, exceptions never looked at


class Run(Values):
    """The context of one operation: it supplies the values of the resolvers and records their calls."""

    def __init__(self, world: RandomSchema, seed: int, temper: Temper) -> None:
        super().__init__(world, seed, temper)
        self.seen = ObservedRun()
        self.event = 0
        self.root: Any = None

    def note(self, info: Info, args: Mapping[str, Any]) -> str:
        path = tuple(info.path.as_list())
        types, step = [], info.path
        while step is not None:
            types.append(step.typename)
            step = step.prev  # type: ignore[assignment]
        values = info.variable_values
        received = (
            info.parent_type.name,
            info.field_name,
            repr(sorted(args.items())),
            str(info.return_type),
            tuple(types),
            tuple(node.loc.start for node in info.field_nodes if node.loc),
            repr(getattr(values, "coerced", values)),
            info.operation.name and info.operation.name.value,
            info.context is self,
            info.root_value is self.root,
            info.schema is self.world.schema,
            tuple(sorted(info.fragments)),
        )
        self.seen.calls.append(ResolverCall(self.event, path, asyncio.get_running_loop().time(), received))
        return "/".join(map(str, (self.event, *path)))

    def answer(self, info: Info, args: Mapping[str, Any]) -> Any:
        key = self.note(info, args)
        rng = self.rng(key)
        if not self.world.awaits or rng.random() < 0.4:
            return self.outcome(rng, info.return_type, key)
        if rng.random() < 0.1:
            shared = f"shared {info.return_type} {rng.randrange(2)}"
            return self.load(shared, lambda: self.outcome(self.rng(shared), info.return_type, shared, lasting=True))
        return self.later(rng, key, lambda: self.outcome(rng, info.return_type, key))

    async def answer_later(self, info: Info, args: Mapping[str, Any]) -> Any:
        key = self.note(info, args)
        rng = self.rng(key)
        if rng.random() < 0.3:
            return self.outcome(rng, info.return_type, key)
        return await self.later(rng, key, lambda: self.outcome(rng, info.return_type, key))

    def root_value(self, kind: str) -> Any:
        """Return the root value. Each event has its own."""
        root = self.world.schema.type_map[kind.capitalize()]
        key = f"{self.event}/root"
        self.root = source_of(self, self.rng(key), root, key)  # type: ignore[arg-type]
        return self.root

    def events(self, info: Info, args: Mapping[str, Any]) -> Any:
        key = self.note(info, args)
        rng = self.rng(f"events {key}")
        if rng.random() < self.temper.wrong:
            return 7
        if rng.random() < self.temper.failure:
            raise self._failure(rng, key)
        return self._events(rng.choice((1, 2, 3)))

    async def events_later(self, info: Info, args: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0)
        return self.events(info, args)

    async def _events(self, count: int) -> AsyncIterator[Any]:
        for self.event in range(1, count + 1):
            rng = self.rng(f"event {self.event}")
            if self.world.awaits:
                await asyncio.sleep(rng.randint(0, 2))
            if rng.random() < self.temper.failure / 2:
                raise ValueError(f"no event {self.event}")
            yield self.root_value("subscription")


Execute = Callable[[Run, ExecutedOperation, type[Executor[Any]]], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Situation:
    """A world, an operation in it and the behaviour of its resolvers, which each executor executes in turn."""

    world: RandomSchema
    operation: ExecutedOperation
    seed: int
    temper: Temper

    def run(self, executor: type[Executor[Any]]) -> ObservedRun:
        """Run the operation. Coroutines that were never awaited are found among the young objects at the end."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            gc.disable()
            try:
                gc.collect(0)
                warned.clear()
                seen = self._seen(executor, _run)
                gc.collect(0)
            finally:
                gc.enable()
            seen.complaints += [str(warning.message) for warning in warned]
        return seen

    def cancelled(self, executor: type[Executor[Any]]) -> ObservedRun:
        """Run the operation and cancel its task on the way, at the same point for all executors."""
        return self._seen(executor, _cancel)

    def _seen(self, executor: type[Executor[Any]], execute: Execute) -> ObservedRun:
        run = Run(self.world, self.seed, self.temper)
        try:
            _, run.seen.complaints = in_virtual_time(lambda: execute(run, self.operation, executor))
        except Stuck:
            run.seen.raised = "Stuck"
        return run.seen


async def _cancel(run: Run, operation: ExecutedOperation, executor: type[Executor[Any]]) -> None:
    task = asyncio.ensure_future(_executed(run, operation, executor))
    rng = run.rng("cancel")
    for _ in range(rng.randint(1, 12)):
        await asyncio.sleep(rng.choice((0, 0, 0, 1)))
    task.cancel()
    await asyncio.wait([task])
    run.seen.raised = "CancelledError" if task.cancelled() else None
    run.seen.unfinished = set(run.open)
    run.seen.tasks = len(asyncio.all_tasks()) - 1


async def _run(run: Run, operation: ExecutedOperation, executor: type[Executor[Any]]) -> None:
    seen = run.seen
    try:
        if operation.kind == "subscription":
            await _subscribed(run, operation, executor)
        else:
            seen.results.append(await _executed(run, operation, executor))
    except (Exception, asyncio.CancelledError) as error:
        seen.raised = f"{type(error).__name__} {error}"
    seen.finished = asyncio.get_running_loop().time()
    seen.unfinished = set(run.open)
    seen.tasks = len(asyncio.all_tasks()) - 1
    for _ in range(TURNS):
        await asyncio.sleep(0)
    seen.staying = set(run.open)
    seen.staying_tasks = len(asyncio.all_tasks()) - 1
    seen.batches = run.batches
    await asyncio.sleep(100)


def comparable_result(result: ExecutionResult) -> Result:
    """Return the result without the exceptions: their tracebacks would keep unawaited coroutines alive."""
    if result.errors is None:
        return Result(result.data, None)
    return Result(
        result.data,
        [
            ErrorFacts(
                error.message,
                tuple(error.path or ()),
                tuple(error.locations or ()),
                type(error.original_error).__name__,
                repr(error.extensions),
                type(error).__name__,
                tuple(getattr(error, "position", error.path) or ()),
            )
            for error in result.errors
        ],
    )


async def _executed(run: Run, operation: ExecutedOperation, executor: type[Executor[Any]]) -> Result:
    result = start(run, operation, executor)
    run.seen.at_once = not isawaitable(result)
    return comparable_result(await result if isawaitable(result) else result)


def start(run: Run, operation: ExecutedOperation, executor: type[Executor[Any]]) -> Any:
    """Return what graphql-core's `execute` returns: a result or an awaitable of one."""

    def finished(_: Any) -> None:
        run.seen.hooks += 1

    return execute(
        run.world.schema,
        operation.document,
        run.root_value(operation.kind),
        run,
        operation.variables,
        operation.name,
        executor_class=executor,
        hooks=ExecutionHooks(async_work_finished=finished) if operation.options.get("hooks") else None,
        hide_suggestions=operation.options.get("hide_suggestions", False),
    )


async def _subscribed(run: Run, operation: ExecutedOperation, executor: type[Executor[Any]]) -> None:
    source: Any = subscribe(
        run.world.schema,
        operation.document,
        run.root_value(operation.kind),
        run,
        operation.variables,
        operation.name,
        executor_class=executor,
    )
    if isawaitable(source):
        source = await source
    if isinstance(source, ExecutionResult):
        run.seen.results.append(comparable_result(source))
        return
    async for result in source:
        run.seen.results.append(comparable_result(result))
