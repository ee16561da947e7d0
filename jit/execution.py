"""One execution of a compiled operation: what it waits for, what went wrong, and what is null for that."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from graphql import ExecutionResult, GraphQLError, GraphQLResolveInfo, located_error
from graphql.execution import Executor, default_field_resolver
from graphql.execution.values import VariableValues

from jit.completion import complete
from jit.coroutine_driver import CoroutineDriver
from jit.field_plan import FieldPlan, Finish
from jit.paths import Path, core_path, keys_of, lies_in

if TYPE_CHECKING:
    from jit.operation import CompiledOperation


class PendingField(CoroutineDriver):
    """A value that is awaited: it stands in its own place (`out[path[1]]`) until it is there.

    Of a list whose items are still to come, `items` are those that came. `followers` are other places that wait for
    this value, as `shared[of]` is it meanwhile; they have no awaitable of their own.
    """

    __slots__ = ("depth", "finish", "followers", "is_given_up", "items", "of", "out", "path", "plan", "run", "shared")
    items: list[Any]
    shared: dict[Hashable, Any]
    of: Hashable

    def __init__(
        self, run: "Execution", plan: FieldPlan, awaitable: Any, path: Path, depth: int, finish: Finish
    ) -> None:
        CoroutineDriver.__init__(self, awaitable, run.loop)
        self.run = run
        self.plan = plan
        self.path = path
        self.depth = depth
        self.finish = finish
        self.out: Any = None
        self.is_given_up = False
        self.followers: list[Follower] | None = None

    def ended(self, error: BaseException | None) -> None:
        """Its value takes its place, or null does."""
        run, known = self.run, None
        if self.followers is not None:
            known = self._learn(error)
        if self.is_given_up:
            pass
        elif error is None:
            finish = self.finish if known is None else known.finish
            try:
                value = finish(run, self.plan, self.value, self.path, complete_awaited)
            except BaseException as problem:  # what is awaited next may have been cancelled already
                run.fail(problem, self.plan, self.path, self.depth, self.out)
            else:
                self.out[self.path[1]] = value
                if value.__class__ is PendingField:
                    value.out = self.out
        else:
            run.fail(error, self.plan, self.path, self.depth, self.out)
        if self.followers:
            self._tell_followers(known, error)
        live = run.live
        live.discard(self)
        if not live and run.idle is not None and not run.idle.done():
            run.idle.set_result(None)

    def _learn(self, error: BaseException | None) -> "SharedValue | None":
        """What was resolved for several places is there; or it failed, and who asks from now on has it tried anew."""
        if error is not None:
            self.forget()
            return None
        known = SharedValue(self.value)
        if self.shared.get(self.of) is self:
            self.shared[self.of] = known
        return known

    def _tell_followers(self, known: "SharedValue | None", error: BaseException | None) -> None:
        """In their order. Those that are given up meanwhile leave the list."""
        run, followers = self.run, self.followers
        assert followers is not None, "Asked before."
        followers.reverse()
        while followers:
            plan, out, around = followers.pop()
            if known is not None:
                value = known.answers.get(plan.alike)
                if value is None:
                    path = (around, plan.key)
                    try:
                        value = known.answer(run, plan, path)
                    except BaseException as problem:
                        run.fail(problem, plan, path, 0, out)
                        continue
                    if value.__class__ is PendingField:
                        value.out = out
                out[plan.key] = value
            else:
                run.fail(error, plan, (around, plan.key), 0, out)

    def give_up(self, place: Path | None) -> bool:
        """Whether nobody waits for it any more, now that nobody does for this place, or all."""
        left = place is None or lies_in(self.path, place)
        if left:
            self.is_given_up = True
        if self.followers:
            waiting = [] if place is None else [one for one in self.followers if not lies_in(one[2], place)]
            left = left or len(waiting) < len(self.followers)
            self.followers[:] = waiting
        return left and self.is_given_up and not self.followers

    def forget(self) -> None:
        """Nobody is to follow it any more."""
        if self.followers is not None and self.shared.get(self.of) is self:
            del self.shared[self.of]


# A field, the object in whose answer it belongs, and the place of that object.
Follower = tuple[FieldPlan, dict[str, Any], Path | None]


class SharedValue:
    """A value that is the same at several places, with what is answered for it wherever that is `FieldPlan.alike`."""

    __slots__ = ("answers", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.answers: dict[object, Any] = {}

    def answer(self, run: "Execution", plan: FieldPlan, path: Path) -> Any:
        """What is answered at this place. `answers` has what is the very same object wherever it is answered."""
        errors = len(run.errors)
        found = plan.finish(run, plan, self.value, path, complete_awaited)
        if plan.alike is None or found.__class__ is not dict or len(run.errors) > errors:
            return found
        if not any(value.__class__ is PendingField for value in found.values()):  # it may fail, and that at each place
            self.answers[plan.alike] = found
        return found

    def finish(self, run: "Execution", plan: FieldPlan, _value: Any, path: Path, _otherwise: Any) -> Any:
        """As `FieldPlan.finish`."""
        return self.answer(run, plan, path)


class Execution:
    """One execution. `data` is the answer as far as it is known, `errors` those that were found."""

    __slots__ = (
        "_build_executor",
        "_executor",
        "arguments",
        "context",
        "data",
        "errors",
        "failed_at_once",
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
        program: "CompiledOperation",
        root: Any,
        context: Any,
        variables: dict[str, Any],
        raw_variables: dict[str, Any] | None,
        build_executor: Callable[["Execution"], "Executor[Any]"],
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
        # What was raised last by something that is awaited, before it had to wait.
        self.failed_at_once: Exception | None = None
        self.live: set[PendingField] = set()
        # By group of fields, and by what is the same where they are resolved alike.
        self.shared: defaultdict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
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
        waiting = PendingField(self, plan, awaitable, path, depth, finish or plan.finish)
        try:
            if waiting.begin():
                self.live.add(waiting)
                return waiting
            return waiting.finish(self, plan, waiting.value, path, complete_awaited)
        except Exception as error:
            self.failed_at_once = error
            raise

    def fail(self, error: BaseException | None, plan: FieldPlan, path: Path, depth: int, out: Any) -> None:
        """What was awaited, or its value, failed: its place in `out` is null, or one around it."""
        if not isinstance(error, Exception):
            self.interrupt(error)
            return
        located = located_error(error, plan.nodes(self.variables), keys_of(path))
        if plan.required[depth]:
            self._null_around(located, plan, depth, path)
        else:
            out[path[1]] = None
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
            if place.__class__ is PendingField:
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
        given_up = [waiting for waiting in self.live if waiting.give_up(path)]
        for waiting in given_up:
            waiting.forget()
            waiting.cancel()

    def interrupt(self, error: BaseException | None) -> None:
        """A resolver was cancelled, or the process is to end: so is all of it."""
        if self.interruption is None:
            self.interruption = error
        self.give_up()

    def lead(self, plan: FieldPlan, shared: dict[Hashable, Any], of: Hashable, awaitable: Any, path: Path) -> Any:
        """As `start`, for all fields that are resolved alike: `shared[of]` is `SharedValue`, or who waits for it."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        waiting = PendingField(self, plan, awaitable, path, 0, plan.finish)
        try:
            if waiting.begin():
                waiting.shared, waiting.of, waiting.followers = shared, of, []
                shared[of] = waiting
                self.live.add(waiting)
                return waiting
            known = shared[of] = SharedValue(waiting.value)
            return known.answer(self, plan, path)
        except Exception as error:
            self.failed_at_once = error
            raise

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
        self.failed_at_once = None  # its frames hold this run
        return ExecutionResult(self.data, self.errors or None)

    async def awaited(self) -> ExecutionResult:
        await self.settled()
        return self.result()


def complete_awaited(run: Execution, plan: FieldPlan, value: Any, path: Path) -> Any:
    """What was awaited is taken as it is, also when it could be awaited again."""
    return complete(run, plan, 0, value, path)
