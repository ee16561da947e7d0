"""Code generation for eager execution: placeholders of pending fields, and fields that share a value."""

from typing import TYPE_CHECKING

from jit.field_plan import FieldPlan
from jit.field_resolvers import DirectResolver

if TYPE_CHECKING:
    from jit.codegen import _Function


def emit_adoption(function: "_Function", plan: FieldPlan) -> None:
    """Generate the link from a pending value to its object `d`. A field that shares the value becomes a follower."""
    value, p, shared = f"v{plan.number}", f"P{plan.number}", f"s{plan.number}"
    function.add(1, f"if {value}.__class__ is PendingField:")
    if is_shared(function, plan):
        function.add(2, f"if {value} is {shared}:", f"    {value}.followers.append(({p}, d, path))", "else:")
        function.add(3, f"{value}.out = d")
    else:
        function.add(2, f"{value}.out = d")


def emit_shared_field(function: "_Function", indent: int, plan: FieldPlan, call: str) -> None:
    """Generate a field that is resolved once for all paths: its value is known, pending, or resolved here by `call`."""
    value, p, place, shared = f"v{plan.number}", f"P{plan.number}", f"p{plan.number}", f"s{plan.number}"
    group, attribute = plan.resolver.shared_by
    function.add(indent, f"{place} = None", "try:")
    function.add(indent + 1, f"g = shared[{function.bind('g', plan, group)}]", f"of = o.{attribute}")
    function.add(indent + 1, f"{shared} = g.get(of)", f"if {shared} is None:")
    function.add(
        indent + 2, f"{place} = (path, k{plan.number})", f"{value} = run.start_shared({p}, g, of, {call}, {place})"
    )
    function.add(
        indent + 1,
        f"elif {shared}.__class__ is SharedValue:",
        f"    {value} = {shared}.completed.get({p}.equality_key)",
    )
    function.add(indent + 2, f"if {value} is None:", f"    {place} = (path, k{plan.number})")
    function.add(indent + 3, f"{value} = {shared}.complete(run, {p}, {place})")
    function.add(indent + 1, "else:", f"    {value} = {shared}")
    function.add(indent, "except Exception as error:")
    function.add(indent + 1, f"{value} = run.handle_error(error, {p}, {place} or (path, k{plan.number}))")


def is_shared(function: "_Function", plan: FieldPlan) -> bool:
    """Return whether a field shares its value with other fields."""
    resolver = plan.resolver
    if not function.eager:
        return False
    if not isinstance(resolver, DirectResolver) or resolver.shared_by is None or plan.parent is None:
        return False
    return resolver.is_async and not plan.takes_arguments
