"""One execution of a compiled operation: what it waits for, what went wrong, and what is null for that."""

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from graphql import ExecutionResult, GraphQLError, GraphQLResolveInfo, Undefined, located_error
from graphql.execution import Executor, default_field_resolver
from graphql.execution.values import VariableValues

from compiled.completing import complete
from compiled.paths import Path, core_path, keys_of, lies_in
from compiled.plans import FieldPlan, Finish
from compiled.strands import Strand

if TYPE_CHECKING:
    from compiled.programs import Program


class Waiting(Strand):
    """A value that is awaited: it stands in its own place (`out[key]`) until it is there.

    Of a list whose items are still to come, `items` are those that came. `followers` are other places that wait for
    this value, under its key `shared`; they have no awaitable of their own.
    """

    __slots__ = ("depth", "finish", "followers", "is_given_up", "items", "key", "out", "path", "plan", "run", "shared")
    items: list[Any]

    def __init__(
        self, run: "Run", plan: FieldPlan, awaitable: Any | None, path: Path, depth: int, finish: Finish
    ) -> None:
        if awaitable is None:
            self._coroutine = None
        else:
            Strand.__init__(self, awaitable, run.loop)
        self.run = run
        self.plan = plan
        self.path = path
        self.depth = depth
        self.finish = finish
        self.key = path[1]
        self.out: Any = None
        self.is_given_up = False
        self.followers: list[Waiting] | None = None
        self.shared: Hashable = None

    def ended(self, error: BaseException | None) -> None:
        """Its value takes its place, or null does."""
        run = self.run
        if self.followers is not None:
            run.learn(self, error)
        if error is None and not self.is_given_up:
            try:
                value = self.finish(run, self.plan, self.value, self.path, complete_awaited)
            except BaseException as problem:  # what is awaited next may have been cancelled already
                run.fail(self, problem)
            else:
                self.out[self.key] = value
                if value.__class__ is Waiting:
                    value.out, value.key = self.out, self.key
        elif not self.is_given_up:
            run.fail(self, error)
        live = run.live
        live.discard(self)
        for follower in self.followers or ():
            follower.value = self.value
            follower.ended(error)
        if not live and run.idle is not None and not run.idle.done():
            run.idle.set_result(None)

    def cancel(self, msg: object = None) -> bool:
        """Have it raise `CancelledError`, unless others wait for its value."""
        if any(not follower.is_given_up for follower in self.followers or ()):
            return False
        return Strand.cancel(self, msg)


class Known:
    """A value that is the same at several places, with what is answered for it, by field."""

    __slots__ = ("answers", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.answers: dict[FieldPlan, Any] = {}

    def answer(self, run: "Run", plan: FieldPlan, path: Path) -> Any:
        """What is answered at this place: the very object that is answered elsewhere, where nothing can differ."""
        found = self.answers.get(plan)
        if found is None:
            errors = len(run.errors)
            found = plan.finish(run, plan, self.value, path, complete_awaited)
            if plan.answers_alike and found.__class__ is dict and len(run.errors) == errors:
                self.answers[plan] = found
        return found

    def finish(self, run: "Run", plan: FieldPlan, _value: Any, path: Path, _otherwise: Any) -> Any:
        """As `FieldPlan.finish`."""
        return self.answer(run, plan, path)


class Run:
    """One execution. `data` is the answer as far as it is known, `errors` those that were found."""

    __slots__ = (
        "_build_executor",
        "_executor",
        "arguments",
        "context",
        "data",
        "errors",
        "field_resolver",
        "idle",
        "interruption",
        "is_nulled",
        "keywords",
        "live",
        "loop",
        "program",
        "raw_variables",
        "root",
        "shared",
        "variables",
    )

    def __init__(
        self,
        program: "Program",
        root: Any,
        context: Any,
        variables: dict[str, Any],
        raw_variables: dict[str, Any] | None,
        build_executor: Callable[["Run"], "Executor[Any]"],
        executor: "Executor[Any] | None" = None,
    ) -> None:
        self.program = program
        self.root = root
        self.context = context
        self.variables = variables
        self.raw_variables = raw_variables
        self._build_executor = build_executor
        self._executor = executor
        self.data: dict[str, Any] | None = None
        self.errors: list[GraphQLError] = []
        self.live: set[Waiting] = set()
        self.shared: dict[Hashable, Any] = {}
        self.arguments: dict[FieldPlan, dict[str, Any]] = {}
        self.keywords: dict[FieldPlan, dict[str, Any]] = {}
        resolver = default_field_resolver if executor is None else executor.field_resolver
        self.field_resolver = None if resolver is default_field_resolver else resolver
        self.idle: asyncio.Future[None] | None = None
        self.interruption: BaseException | None = None
        self.is_nulled = False
        self.loop: Any = asyncio._get_running_loop()

    @property
    def executor(self) -> "Executor[Any]":
        """graphql-core's own, made when something of it is asked for."""
        if self._executor is None:
            self._executor = self._build_executor(self)
        return self._executor

    @property
    def variable_values(self) -> VariableValues:
        return self.executor.variable_values

    @property
    def hide_suggestions(self) -> bool:
        return self.executor.hide_suggestions

    def info(self, plan: FieldPlan, path: Path) -> GraphQLResolveInfo[Any]:
        """What graphql-core tells a resolver of a field, for the items of its list, too."""
        while isinstance(path[1], int):
            path = path[0]
        nodes = plan.nodes(self.variables)
        return self.executor.build_resolve_info(plan.field, nodes, plan.parent_type, core_path(plan, path))

    # Waiting

    def start(self, plan: FieldPlan, awaitable: Any, path: Path, depth: int = 0, finish: Finish | None = None) -> Any:
        """The finished value if the awaitable need not wait, else what stands in its place until then."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        waiting = Waiting(self, plan, awaitable, path, depth, finish or plan.finish)
        if waiting.begin():
            self.live.add(waiting)
            return waiting
        return waiting.finish(self, plan, waiting.value, path, complete_awaited)

    def fail(self, waiting: Waiting, error: BaseException | None) -> None:
        """What was awaited, or its value, failed."""
        if not isinstance(error, Exception):
            self.interrupt(error)
            return
        plan, path = waiting.plan, waiting.path
        located = located_error(error, plan.nodes(self.variables), keys_of(path))
        if plan.required[waiting.depth]:
            self._null_around(located, plan, waiting.depth, path)
        else:
            waiting.out[waiting.key] = None
            self.note(located, path)

    def _null_around(self, error: GraphQLError, plan: FieldPlan | None, depth: int, path: Any) -> None:
        """Null the nearest place around this one that may be."""
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
            self.note(error, path)

    def null_all(self, error: GraphQLError) -> None:
        """A field of the root may not be null, and is."""
        self.data = None
        self.is_nulled = True
        self.note(error, None)

    def _put_null(self, keys: list[str | int]) -> bool:
        """False where it is null already."""
        place: Any = self.data
        if place is None:
            return False
        for key in keys[:-1]:
            place = place[key]
            if place is None:
                return False
            if place.__class__ is Waiting:
                place = place.items
        if place[keys[-1]] is None:
            return False
        place[keys[-1]] = None
        return True

    def failed(self, error: Exception, plan: FieldPlan, path: Path, depth: int = 0) -> Any:
        """None, for a place that may be null, once the error is told of; else it is raised, located."""
        located = located_error(error, plan.nodes(self.variables), keys_of(path))
        if plan.required[depth]:
            raise located
        self.note(located, path)
        return None

    def note(self, error: GraphQLError, path: Path | None) -> None:
        """Tell of an error by which this place became null; what is still awaited for it is given up."""
        self.errors.append(error)
        if self.live:
            self.give_up(path)

    def give_up(self, path: Path | None = None) -> None:
        """Cancel what is awaited for this place, or all."""
        given_up = [waiting for waiting in self.live if path is None or lies_in(waiting.path, path)]
        for waiting in given_up:
            waiting.is_given_up = True
        for waiting in given_up:
            waiting.cancel()

    def interrupt(self, error: BaseException | None) -> None:
        """A resolver was cancelled, or the process is to end: so is all of it."""
        if self.interruption is None:
            self.interruption = error
        self.give_up()

    # Values that are the same at several places

    def known(self, plan: FieldPlan, key: Hashable, path: Path) -> Any:
        """The answer of a field that is resolved as another was, or its stand-in; `Undefined` if none was."""
        found = self.shared.get(key)
        if found is None:
            return Undefined
        if found.__class__ is Known:
            return found.answer(self, plan, path)
        follower = Waiting(self, plan, None, path, 0, plan.finish)
        found.followers.append(follower)
        self.live.add(follower)
        return follower

    def lead(self, plan: FieldPlan, key: Hashable, awaitable: Any, path: Path) -> Any:
        """As `start`, for all fields that are resolved alike."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        waiting = Waiting(self, plan, awaitable, path, 0, plan.finish)
        if waiting.begin():
            waiting.shared, waiting.followers = key, []
            self.shared[key] = waiting
            self.live.add(waiting)
            return waiting
        known = self.shared[key] = Known(waiting.value)
        return known.answer(self, plan, path)

    def learn(self, leader: Waiting, error: BaseException | None) -> None:
        """What was resolved for several places is there; or it failed, and who asks from now on has it tried anew."""
        if error is not None:
            del self.shared[leader.shared]
            return
        known = self.shared[leader.shared] = Known(leader.value)
        for waiting in (leader, *(leader.followers or ())):
            waiting.finish = known.finish

    async def settled(self) -> None:
        """Wait until nothing is awaited any more. Cancelled, it cancels all that is, and waits for that."""
        while self.live:
            self.idle = self.loop.create_future()
            try:
                await self.idle
            except asyncio.CancelledError:
                self.give_up()
                while self.live:
                    self.idle = self.loop.create_future()
                    await self.idle
                raise
        if self.interruption is not None:
            raise self.interruption

    def result(self) -> ExecutionResult:
        return ExecutionResult(self.data, self.errors or None)

    async def awaited(self) -> ExecutionResult:
        await self.settled()
        return self.result()


def complete_awaited(run: Run, plan: FieldPlan, value: Any, path: Path) -> Any:
    """What was awaited is taken as it is, also when it could be awaited again."""
    return complete(run, plan, 0, value, path)
