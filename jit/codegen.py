"""Code generation: a Python function for each selection set, and one for the values of each field.

The generated code handles common values; `completion` handles all others. The source of a function depends only on the
sequence of kinds of fields: names, keys and fields are its parameters. Equal sources are therefore frequent, and are
compiled once.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from threading import Lock
from types import CoroutineType
from typing import Any

from graphql import (
    GraphQLBoolean,
    GraphQLFloat,
    GraphQLID,
    GraphQLInt,
    GraphQLString,
    Undefined,
    is_enum_type,
    is_object_type,
)

from jit.collect_fields import any_holds
from jit.completion import at_field, failed_item, items_from, leaves, ordered, resolved
from jit.eager.batches import WAITING
from jit.eager.codegen import batch_of, emit_adoption
from jit.eager.execution import adopt_all
from jit.eager.pending_field import PendingField
from jit.execution import guarded
from jit.field_plan import FieldPlan, Finish, Select
from jit.field_resolvers import (
    AttributeResolver,
    DirectResolver,
    IdentityResolver,
    RawResolver,
    called_later,
    default,
    keywords,
)

# The characters of all cached sources, which take some 3 MB with their code. A source above MAX_SOURCE_CHARACTERS, some
# fifty fields, is not cached: it is rarely equal to another one, and would evict many.
MAX_CACHED_CHARACTERS = 1_000_000
MAX_SOURCE_CHARACTERS = 10_000
# Conditions with more variables are evaluated by a function instead of generated code.
MAX_INLINE_VARIABLES = 3
EXACT = {
    GraphQLString: "{0}.__class__ is str",
    GraphQLID: "{0}.__class__ is str",
    GraphQLInt: "{0}.__class__ is int and -2147483648 <= {0} <= 2147483647",
    GraphQLBoolean: "({0} is True or {0} is False)",
    # The subtraction excludes NaN and infinity.
    GraphQLFloat: "{0}.__class__ is float and {0} - {0} == 0.0",
}
_NAMES: dict[str, Any] = {
    "CoroutineType": CoroutineType,
    "TEXTS": frozenset([str]),
    "Undefined": Undefined,
    "WAITING": WAITING,
    "PendingField": PendingField,
    "adopt_all": adopt_all,
    "any_holds": any_holds,
    "at_field": at_field,
    "called_later": called_later,
    "default": default,
    "failed_item": failed_item,
    "guarded": guarded,
    "items_from": items_from,
    "keywords": keywords,
    "leaves": leaves,
    "ordered": ordered,
    "resolved": resolved,
}


def selection(plans: Sequence[FieldPlan], *, in_order: bool, eager: bool) -> Select:
    """Compile `select(run, source, path)`, which completes an object.

    Unless `in_order`, the order of the keys depends on variables, and the function sorts them. The function returns the
    object: if `eager`, with placeholders of pending fields, otherwise a coroutine of it if a field has to be awaited.
    """
    function = _Function("run, o, path", eager=eager)
    for number, plan in enumerate(plans):
        plan.number = number
        function.bind("k", plan, plan.key)
    conditional = not in_order or any(plan.conditions for plan in plans)
    has_leaves = not conditional and any(map(_is_attribute_leaf, plans))
    # Without __typename and the attributes, whose values are `odd` if they may have to be awaited.
    others = [
        plan for plan in plans if not (isinstance(plan.resolver, str) or (not conditional and _is_attribute_leaf(plan)))
    ]
    values = [f"v{plan.number}" for plan in others]
    if has_leaves:
        function.add(1, "odd = ()")
    discards = not eager and len(plans) > 1 and (has_leaves or bool(values))
    if discards:
        function.add(1, *[f"{value} = None" for value in values], "try:")
        function.margin += 1
    (_emit_conditional_fields if conditional else _emit_fields)(function, plans)
    if discards:
        function.margin -= 1
        left = ", ".join([*values, *(["*odd"] if has_leaves else [])])
        function.add(1, "except Exception as error:", f"    run.discard(({left},), (), error)", "    raise")
    if not in_order:
        function.parameters["plans"] = tuple(plans)
        function.add(1, "d = ordered(run, plans, d)")
    if eager:
        for plan in others:
            emit_adoption(function, plan)
        if has_leaves:
            function.add(1, "if odd:", "    adopt_all(d, odd)")
    elif values or has_leaves:
        tests = [f"{value}.__class__ is CoroutineType" for value in values] + (["odd"] if has_leaves else [])
        function.add(1, f"if {' or '.join(tests)}:", "    return run.joined(d)")
    function.add(1, "return d")
    return function.build()


def resolution(plan: FieldPlan) -> Callable[[Any, Any, Any], Any]:
    """Compile `resolve(run, source, path)`, which calls the resolver of a field of eager execution."""
    function = _Function("run, o, p", eager=True)
    function.bind("P", plan, plan)
    function.add(1, f"return {_call(function, plan, 'p')[0]}")
    return function.build()


def finish(plan: FieldPlan, *, eager: bool) -> Finish:
    """Compile `finish(run, plan, value, path, otherwise)`, which completes a value of the field."""
    function = _Function("run, P, v, p, otherwise", eager=eager)
    if plan.leaf:
        _bind_coercion(function, plan, "")
        _emit_leaf_finish(function, plan)
    elif is_object_type(plan.innermost) and plan.depth <= 1:
        function.parameters["K"] = plan.plain
        _emit_object_finish(function, plan)
    if not plan.required[0]:
        function.add(1, "if v is None:", "    return None")
    function.add(1, "return otherwise(run, P, v, p)")
    return function.build()


class _Function:
    """The source of a function. `parameters` are the values that the source refers to, by name."""

    def __init__(self, signature: str, *, eager: bool) -> None:
        self.eager = eager
        self.margin = 1
        self.parameters: dict[str, Any] = {}
        self._lines = [f"    def function({signature}):"]

    def add(self, indent: int, *lines: str) -> None:
        """Add lines to the body of the function."""
        margin = "    " * (indent + self.margin)
        self._lines += [margin + line for line in lines]

    def bind(self, prefix: str, plan: FieldPlan, value: Any) -> str:
        """Add a parameter for a field. Return its name."""
        name = f"{prefix}{plan.number}"
        self.parameters[name] = value
        return name

    def build(self) -> Callable[..., Any]:
        """Compile the source. Return the function with its parameters bound."""
        text = "\n".join([f"def make({', '.join(self.parameters)}):", *self._lines, "    return function"])
        return _CACHE.compiled(text)(*self.parameters.values())


class _CodeCache:
    """A cache of compiled sources of at most `max_source` characters each, and `max_characters` in total."""

    def __init__(self, max_characters: int, max_source: int) -> None:
        self._max_characters = max_characters
        self._max_source = max_source
        self._lock = Lock()
        self._makers: OrderedDict[str, Callable[..., Callable[..., Any]]] = OrderedDict()
        self._characters = 0

    def compiled(self, text: str) -> Callable[..., Callable[..., Any]]:
        with self._lock:
            make = self._makers.get(text)
            if make is not None:
                self._makers.move_to_end(text)
                return make
        make = _compiled(text)
        with self._lock:
            if len(text) <= self._max_source and text not in self._makers:
                self._makers[text] = make
                self._characters += len(text)
                while self._characters > self._max_characters:
                    oldest, _ = self._makers.popitem(last=False)
                    self._characters -= len(oldest)
        return make


_CACHE = _CodeCache(MAX_CACHED_CHARACTERS, MAX_SOURCE_CHARACTERS)


def _compiled(text: str) -> Callable[..., Callable[..., Any]]:
    names: dict[str, Callable[..., Callable[..., Any]]] = {}
    exec(compile(text, "<operation>", "exec"), _NAMES, names)
    return names["make"]


# Selections


def _emit_fields(function: _Function, plans: Sequence[FieldPlan]) -> None:
    """Generate the fields of a selection set. Attributes that are leaves are read together."""
    for is_leaf, members in groupby(plans, _is_attribute_leaf):
        group = list(members)
        if is_leaf:
            _emit_leaves(function, group)
        else:
            for plan in group:
                _emit_field(function, 1, plan)
    function.add(1, f"d = {{{', '.join(f'k{plan.number}: v{plan.number}' for plan in plans)}}}")


def _emit_conditional_fields(function: _Function, plans: Sequence[FieldPlan]) -> None:
    function.add(1, "d = {}", "variables = run.variables")
    for plan in plans:
        indent, value = 1, f"v{plan.number}"
        if plan.conditions:
            function.add(1, f"{value} = None", f"if {_is_included(function, plan)}:")
            indent = 2
        _emit_field(function, indent, plan)
        function.add(indent, f"d[k{plan.number}] = {value}")


def _emit_leaves(function: _Function, plans: Sequence[FieldPlan]) -> None:
    """Generate the reads of leaf attributes: together if all values are common, otherwise one by one."""
    values = [f"v{plan.number}" for plan in plans]
    for plan in plans:
        _bind_coercion(function, plan, str(plan.number))
    function.add(1, "try:")
    function.add(2, *[f"{value} = o.{_attribute(plan)}" for value, plan in zip(values, plans, strict=True)])
    tests = [f"({_common_test(plan, value)})" for value, plan in zip(values, plans, strict=True)]
    function.add(2, f"usual = {' and '.join(tests)}")
    converted = [plan for plan in plans if plan.depth or plan.innermost not in EXACT]
    if converted:
        function.add(2, "if usual:")
        for plan in converted:
            _emit_conversion(function, 3, plan)
    function.add(1, "except Exception:", "    usual = False")
    read = f"    {', '.join(values)}, = found = leaves(run, {function.bind('G', plans[0], tuple(plans))}, o, path)"
    function.add(1, "if not usual:", read, "    odd = (*odd, *found)")


def _emit_conversion(function: _Function, indent: int, plan: FieldPlan) -> None:
    value = f"v{plan.number}"
    if not plan.required[0]:
        function.add(indent, f"if {value} is not None:")
        indent += 1
    if plan.depth:
        function.add(indent, f"{value} = list({value})")
        return
    function.add(indent, f"{value} = S{plan.number}({value})")
    function.add(indent, f"if {value} is None or {value} is Undefined:", "    usual = False")


def _emit_field(function: _Function, indent: int, plan: FieldPlan) -> None:
    value, place = f"v{plan.number}", f"p{plan.number}"
    if isinstance(plan.resolver, str):  # __typename
        function.add(indent, f"{value} = {function.bind('t', plan, plan.resolver)}")
        return
    plan.finish = finish(plan, eager=function.eager)
    p = function.bind("P", plan, plan)
    if batch_of(function, plan):
        function.add(indent, f"{value} = WAITING")
        return
    call, awaits = _call(function, plan, place)
    function.add(indent, f"{place} = (path, k{plan.number})", "try:")
    if awaits and function.eager:
        function.add(indent + 1, f"{value} = run.start({p}, {call}, {place})")
    else:
        c = function.bind("c", plan, plan.finish)
        function.add(indent + 1, f"{value} = {c}(run, {p}, {call}, {place}, resolved)")
    function.add(indent, "except Exception as error:", f"    {value} = run.handle_error(error, {p}, {place})")


def _call(function: _Function, plan: FieldPlan, place: str) -> tuple[str, bool]:
    """Return the expression that resolves a field, and whether its value is always a coroutine."""
    p, resolver = f"P{plan.number}", plan.resolver
    match resolver:
        case AttributeResolver():
            return f"o.{resolver.name}", False
        case IdentityResolver():
            return "o", False
        case DirectResolver():
            f = function.bind("f", plan, resolver.function)
            arguments = ["o"] if resolver.takes_self else []
            arguments += [f"{name}=o" for name in resolver.parents]
            if resolver.info:
                info = function.bind("i", plan, resolver.info_class)
                arguments.append(f"{resolver.info}={info}(run, {p}, {place})")
            if plan.takes_arguments and resolver.is_async and not function.eager:
                return f"called_later(run, {', '.join([p, place, f'{p}.arguments(run)', *arguments])})", True
            if plan.takes_arguments:
                arguments.append(f"**keywords(run, {p}, {place})")
            return f"{f}({', '.join(arguments)})", resolver.is_async
        case RawResolver():
            f = function.bind("f", plan, resolver.function)
            keyword_arguments = f", **{p}.arguments(run)" if plan.takes_arguments else ""
            return f"{f}(o, run.info({p}, {place}){keyword_arguments})", False
    return f"default(run, {p}, o, {place})", False


# Values


def _bind_coercion(function: _Function, plan: FieldPlan, number: str) -> None:
    """Add the parameters that coerce the values of a leaf, unless its values are returned unchanged."""
    if plan.innermost not in EXACT:
        coerce = plan.names.get if is_enum_type(plan.innermost) else plan.innermost.coerce_output_value
        function.parameters |= {f"K{number}": plan.plain, f"S{number}": coerce}


def _emit_leaf_finish(function: _Function, plan: FieldPlan) -> None:
    exact = EXACT.get(plan.innermost)
    if plan.depth == 0 and exact:
        function.add(1, f"if {exact.format('v')}:", "    return v")
    elif plan.depth == 0:
        function.add(1, "if v.__class__ in K:", "    r = S(v)")
        function.add(2, "if r is not None and r is not Undefined:", "    return r")
    elif plan.depth == 1 and exact:
        function.add(1, "if v.__class__ is list or v.__class__ is tuple:", "    for x in v:")
        function.add(3, f"if not ({exact.format('x')}):", "    break")
        function.add(2, "else:", "    return list(v)")
    elif plan.depth == 1:
        function.add(1, "if v.__class__ is list or v.__class__ is tuple:", "    try:")
        function.add(3, "r = [S(x) if x.__class__ in K else None for x in v]")
        function.add(3, f"if None not in r{'' if is_enum_type(plan.innermost) else ' and Undefined not in r'}:")
        function.add(4, "return r")
        function.add(2, "except Exception:", "    pass  # the error of an item")


def _emit_object_finish(function: _Function, plan: FieldPlan) -> None:
    if plan.depth == 0:
        function.add(1, "if v.__class__ in K:")
        function.add(2, f"{'return' if function.eager else 'r ='} P.selected(run, v, p)")
        if not function.eager:
            function.add(2, "return r if r.__class__ is not CoroutineType else at_field(run, r, P, p, otherwise)")
        return
    items = "items_from(run, P, 1, r, iter(v[i:]), p)"
    rest = items if function.eager else f"at_field(run, {items}, P, p, otherwise)"
    function.add(1, "if v.__class__ is list or v.__class__ is tuple:")
    function.add(2, "select, w = P.selected, False", "r = []", "i = 0", "for x in v:")
    function.add(3, "if x.__class__ not in K:", f"    return {rest}")
    function.add(3, "q = (p, i)", "try:", "    y = select(run, x, q)")
    if not function.eager:
        function.add(4, "if y.__class__ is CoroutineType:", "    y = guarded(run, y, P, q, 1)", "    w = True")
    function.add(3, "except Exception as error:", "    y = failed_item(run, error, P, q, r, v)")
    function.add(3, "r.append(y)", "i += 1")
    function.add(2, "return at_field(run, run.joined(r), P, p, otherwise) if w else r")


def _is_attribute_leaf(plan: FieldPlan) -> bool:
    return _attribute(plan) is not None and plan.leaf and (plan.depth == 0 or _is_of_texts(plan))


def _attribute(plan: FieldPlan) -> str | None:
    """Return the name of the attribute that has the value, or None."""
    resolver = plan.resolver
    if isinstance(resolver, AttributeResolver):
        return resolver.name
    return resolver.preloaded if isinstance(resolver, DirectResolver) and not plan.takes_arguments else None


def _is_of_texts(plan: FieldPlan) -> bool:
    return plan.depth == 1 and plan.innermost in (GraphQLString, GraphQLID)


def _is_included(function: _Function, plan: FieldPlan) -> str:
    """Return the expression that tests whether one of the field's conditions holds."""
    names = [name for condition in plan.conditions for name, _ in sorted(condition)]
    if len(names) > MAX_INLINE_VARIABLES:
        return f"any_holds({function.bind('h', plan, plan.conditions)}, variables)"
    parameters = {f"n{plan.number}_{index}": name for index, name in enumerate(names)}
    unused = iter(parameters)
    tests = []
    for condition in plan.conditions:
        values = [f"{'' if required else 'not '}variables[{next(unused)}]" for _, required in sorted(condition)]
        tests.append(" and ".join(values))
    function.parameters |= parameters
    return " or ".join(tests)


def _common_test(plan: FieldPlan, value: str) -> str:
    if _is_of_texts(plan):
        test = f"({value}.__class__ is tuple or {value}.__class__ is list) and TEXTS.issuperset(map(type, {value}))"
    elif exact := EXACT.get(plan.innermost):
        test = exact.format(value)
    else:
        test = f"{value}.__class__ in K{plan.number}"
    if plan.required[0] or not isinstance(plan.resolver, AttributeResolver):
        return test  # of a field with a function, None means that the attribute has no value
    return f"{value} is None or {test}"
