"""Pending fields: the placeholders of values that are awaited."""

from typing import TYPE_CHECKING, Any

from jit.completion import complete_awaited
from jit.eager.coroutine_driver import CoroutineDriver
from jit.field_plan import FieldPlan, Finish, Path

if TYPE_CHECKING:
    from jit.eager.execution import EagerExecution


class PendingField(CoroutineDriver):
    """A field whose value is awaited. The object is also the placeholder of the value in the response (`out[path[1]]`).

    `items` are the received items of an asynchronous list.
    """

    __slots__ = ("depth", "finish", "is_abandoned", "items", "out", "path", "plan", "run")
    items: list[Any]

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

    def on_done(self, error: BaseException | None) -> None:
        """Replace the placeholder by the completed value, or by null."""
        run = self.run
        if self.is_abandoned:
            pass
        elif error is None:
            try:
                value = self.finish(run, self.plan, self.value, self.path, complete_awaited)
            except BaseException as problem:  # a nested awaitable may have been cancelled already
                run.fail(problem, self.plan, self.path, self.depth, self.out)
            else:
                self.out[self.path[1]] = value
                if value.__class__ is PendingField:
                    value.out = self.out
        else:
            run.fail(error, self.plan, self.path, self.depth, self.out)
        run.end(self)

    def abandon(self) -> bool:
        """Return whether an error has set the field, or a place around it, to null, for the first time."""
        if self.is_abandoned or not self.run.lies_in_null(self.path):
            return False
        self.is_abandoned = True
        return True
