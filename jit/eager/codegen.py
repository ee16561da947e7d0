"""Code generation for eager execution: placeholders of pending fields, and fields that are resolved in batches."""

from typing import TYPE_CHECKING

from jit.field_plan import FieldPlan
from jit.field_resolvers import Batch, DirectResolver

if TYPE_CHECKING:
    from jit.codegen import _Function


def emit_adoption(function: "_Function", plan: FieldPlan) -> None:
    """Generate the link from a pending value to its object `d`, or the entry of a field in its batch."""
    value, batch = f"v{plan.number}", batch_of(function, plan)
    if batch is None:
        function.add(1, f"if {value}.__class__ is PendingField:", f"    {value}.out = d")
        return
    p, indent = f"P{plan.number}", 1
    if plan.conditions:
        function.add(1, f"if {value} is WAITING:")
        indent = 2
    key = "o" if batch.attribute is None else f"o.{batch.attribute}"
    shares = plan if plan.takes_arguments else batch.function
    waiting = f"run.batches[{function.bind('b', plan, shares)}][{key}]"
    function.add(indent, "try:", f"    {waiting}.append(({p}, d, path))", "except Exception as error:")
    function.add(indent + 1, f"d[k{plan.number}] = run.handle_error(error, {p}, (path, k{plan.number}))")


def batch_of(function: "_Function", plan: FieldPlan) -> Batch | None:
    """Return the batch in which a field is resolved together with others; None if it is resolved alone."""
    resolver = plan.resolver
    if not function.eager or not isinstance(resolver, DirectResolver) or plan.parent is None:
        return None
    return resolver.batch
