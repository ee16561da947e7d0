"""The cache of operations belongs to a schema, is bounded, counts executions, and serves any number of threads."""

import asyncio
import gc
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any
from weakref import ref

import pytest
from graphql import (
    ExecutionHooks,
    ExecutionResult,
    GraphQLSchema,
    MiddlewareManager,
    build_schema,
    execute,
    parse,
    subscribe,
)
from graphql.pyutils import AbortController, is_awaitable

from jit import CompiledExecutor, OperationCache, Reason, cache_of, operation_of
from jit import codegen as source
from tests.support.executors import CompilingExecutor, EagerExecutor, first_operation

TYPES = """
    type Query { name: String me: Query others(like: Like): [Query] }
    input Like { name: String }
    type Subscription { ticks: Int }
"""
ROOT = {"name": "x", "me": {"name": "y"}, "others": lambda info, like: [like]}


class NeverCompilingExecutor(CompiledExecutor):
    compile_after = 0


class OverridingExecutor(CompilingExecutor):
    def complete_value(self, *arguments: Any) -> Any:
        return super().complete_value(*arguments)


class FailingExecutor(CompilingExecutor):
    @classmethod
    def resolver_of(cls, plan: Any) -> Any:
        raise ValueError("no resolver")


def new_schema(types: str = TYPES) -> GraphQLSchema:
    return build_schema(types)


async def run_by_core(schema: GraphQLSchema, text: str, **options: Any) -> None:
    result: Any = execute(schema, parse(text), ROOT, **{"executor_class": CompilingExecutor} | options)
    if asyncio.iscoroutine(result):
        await result


async def test_operations_are_freed_with_their_schema() -> None:
    schema = new_schema()
    document = parse("{ name }")
    execute(schema, document, ROOT, executor_class=CompilingExecutor)
    execute(schema, document, ROOT, executor_class=CompilingExecutor)
    assert cache_of(schema).statistics().operations == 1

    gone = ref(schema)
    del schema
    gc.collect()

    assert gone() is None


async def test_schemas_do_not_share_operations_or_counts() -> None:
    first, second = new_schema(), new_schema()

    await run_by_core(first, "{ name }")

    assert cache_of(first) is cache_of(first)
    assert cache_of(first).statistics()[:4] == (1, {}, 1, 1)
    assert cache_of(second).statistics()[:4] == (0, {}, 0, 0)


async def test_a_copy_of_a_schema_begins_with_an_empty_cache() -> None:
    schema = new_schema()
    cache_of(schema).max_fields = 7
    await run_by_core(schema, "{ name }")

    copied = pickle.loads(pickle.dumps(cache_of(schema)))

    assert copied.statistics().compiled == 0
    assert copied.max_fields == 7


async def test_the_operations_that_nobody_holds_are_limited() -> None:
    schema = new_schema()
    cache_of(schema).max_operations = 2
    documents = [parse(f"{{ a{number}: name }}") for number in range(3)]

    for document in documents:
        execute(schema, document, ROOT, executor_class=CompilingExecutor)

    assert cache_of(schema).statistics().operations == 2
    execute(schema, documents[2], ROOT, executor_class=CompiledExecutor)  # another class: another operation
    assert cache_of(schema).statistics().operations == 1


async def test_clear_drops_compiled_operations_and_keeps_the_counts() -> None:
    schema = new_schema()
    held = first_operation(schema, "{ name me { name } }", CompiledExecutor)
    held.execute(None, root=ROOT)
    held.execute(None, root=ROOT)
    await run_by_core(schema, "{ name }")
    before = cache_of(schema).statistics()
    assert before == (2, {Reason.NOT_YET: 1}, 2, 4, 0)

    cache_of(schema).clear()

    assert cache_of(schema).statistics() == (2, {Reason.NOT_YET: 1}, 0, 0, 0)
    assert held.execute(None, root=ROOT) == ExecutionResult({"name": "x", "me": {"name": "y"}}, None)
    assert cache_of(schema).statistics().interpreted == {Reason.NOT_YET: 2}


async def test_operations_beyond_the_limit_of_fields_are_counted_as_evicted() -> None:
    schema = new_schema()
    cache_of(schema).max_fields = 3
    held = [first_operation(schema, f"{{ a{number}: name b: name }}", CompilingExecutor) for number in range(3)]

    for operation in held:
        operation.execute(None, root=ROOT)

    assert cache_of(schema).statistics() == (3, {}, 1, 2, 2)
    del operation, held
    assert cache_of(schema).statistics()[2:] == (0, 0, 2)


async def test_an_operation_whose_variables_graphql_core_coerces_is_compiled_once() -> None:
    schema = new_schema()
    operation = first_operation(schema, "query ($like: Like) { others(like: $like) { name } }", CompiledExecutor)

    results = [operation.execute(None, {"like": {"name": name}}, root=ROOT) for name in "abc"]

    assert [result.data for result in results if isinstance(result, ExecutionResult)] == [
        {"others": [{"name": name}]} for name in "abc"
    ]
    assert cache_of(schema).statistics()[:3] == (2, {Reason.NOT_YET: 1}, 1)
    invalid = operation.execute(None, {"like": 1}, root=ROOT)
    assert isinstance(invalid, ExecutionResult)
    assert invalid.data is None
    assert cache_of(schema).statistics().compiled == 2


async def test_a_subscription_keeps_its_operation() -> None:
    async def ticks() -> Any:
        for number in range(4):
            yield {"ticks": number}

    schema = new_schema()
    cache_of(schema).max_operations = 1
    stream: Any = subscribe(
        schema, parse("subscription { ticks }"), {"ticks": ticks()}, executor_class=CompiledExecutor
    )
    answers = []
    async for result in await stream if asyncio.iscoroutine(stream) else stream:
        answers.append(result.data)
        await run_by_core(schema, "{ name }", executor_class=NeverCompilingExecutor)

    assert answers == [{"ticks": number} for number in range(4)]
    assert cache_of(schema).statistics()[:2] == (3, {Reason.NOT_YET: 1, Reason.DISABLED: 4})


def test_a_retained_operation_is_not_evicted_until_its_last_user_releases_it() -> None:
    schema = new_schema()
    cache = cache_of(schema)
    cache.max_fields = 2
    kept, *others = [first_operation(schema, f"{{ a{number}: name }}", CompilingExecutor) for number in range(4)]

    def run(operation: Any) -> None:
        operation.execute(None, root=ROOT)

    kept.retain()
    run(kept)
    kept.retain()
    for other in others:
        run(other)
    assert kept.compiled is not None
    assert cache.statistics()[2:] == (3, 3, 1)  # two others beside the retained operation

    kept.release()
    run(others[0])
    assert kept.compiled is not None
    kept.release()
    assert kept.compiled is not None
    for other in others[:2]:
        run(other)
    assert kept.compiled is None
    assert cache.statistics().fields == 2


def test_retained_operations_beyond_the_limit_are_evicted_like_others() -> None:
    schema = new_schema()
    cache = cache_of(schema)
    cache.max_fields = 1
    first, second, third = [first_operation(schema, f"{{ a{number}: name }}", CompilingExecutor) for number in range(3)]
    for operation in (first, second, third):
        operation.retain()
        operation.execute(None, root=ROOT)

    assert [operation.compiled is not None for operation in (first, second, third)] == [True, False, True]
    cache.clear()
    assert [operation.compiled for operation in (first, second, third)] == [None] * 3
    assert cache.statistics()[2:4] == (0, 0)
    second.execute(None, root=ROOT)
    assert cache.statistics()[2:4] == (1, 1)
    for operation in (first, second, third):
        operation.release()


def test_the_fields_of_a_retained_operation_are_released_if_it_can_no_longer_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = new_schema()
    operation = first_operation(schema, "{ name }", CompilingExecutor)
    operation.retain()
    operation.execute(None, root=ROOT)
    with monkeypatch.context() as patched:
        patched.setattr("jit.cache.CachedOperation._compile", lambda _: None)
        schema.type_map["Query"].fields["name"].resolve = lambda *_: "other"  # type: ignore[attr-defined]
        operation.execute(None, root=ROOT)
    assert operation.compiled is None

    operation.release()

    assert cache_of(schema).statistics()[2:4] == (0, 0)


def call_next(resolve: Any, *given: Any, **named: Any) -> Any:
    return resolve(*given, **named)


FRAGMENTS = " ".join(f"fragment f{n} on Query {{ a: me {{ ...f{n + 1} }} b: me {{ ...f{n + 1} }} }}" for n in range(9))
INTERPRETED: list[tuple[Reason, str, dict[str, Any]]] = [
    (Reason.NOT_YET, "{ name }", {"executor_class": CompiledExecutor}),
    (Reason.DISABLED, "{ name }", {"executor_class": NeverCompilingExecutor}),
    (Reason.OVERRIDDEN, "{ name }", {"executor_class": OverridingExecutor}),
    (Reason.FAILED, "{ name }", {"executor_class": FailingExecutor}),
    (Reason.INTROSPECTION, "{ __schema { queryType { name } } }", {}),
    (Reason.INCREMENTAL, "{ ... @defer { name } }", {}),
    (Reason.ERROR_PROPAGATION, "query @experimental_disableErrorPropagation { name }", {}),
    (Reason.CONDITION, "{ name @include(if: 1) }", {}),
    (Reason.NO_ROOT, "mutation { name }", {}),
    (Reason.TOO_MANY_FIELDS, f"{{ ...f0 }} {FRAGMENTS} fragment f9 on Query {{ name }}", {}),
    (Reason.VARIABLES, "query ($if: Boolean) { name @include(if: $if) }", {"variable_values": {"if": None}}),
    (
        Reason.MIDDLEWARE,
        "{ name }",
        {"middleware": MiddlewareManager(call_next)},
    ),
    (Reason.ABORT_SIGNAL, "{ name }", {"abort_signal": AbortController().signal}),
    (Reason.HOOKS, "{ name }", {"hooks": ExecutionHooks(async_work_finished=lambda info: None)}),
    (Reason.PREDICATE, "{ name }", {"is_awaitable": lambda value: is_awaitable(value)}),
]


@pytest.mark.parametrize(("reason", "text", "options"), INTERPRETED, ids=[reason for reason, _, _ in INTERPRETED])
async def test_executions_by_graphql_core_are_counted_with_the_reason(
    reason: Reason, text: str, options: dict[str, Any]
) -> None:
    schema = new_schema()

    await run_by_core(schema, text, **options)

    assert cache_of(schema).statistics()[:2] == (0, {reason: 1})


async def test_mutations_in_a_conditional_order_and_fragments_with_variables_are_counted() -> None:
    schema = new_schema("type Query { name: String } type Mutation { a: String b: String }")
    text = "mutation ($if: Boolean!) { a @include(if: $if) b a }"
    await run_by_core(schema, text, variable_values={"if": True})
    fragments = parse(
        "{ ...f(x: null) } fragment f($x: String) on Query { name }", experimental_fragment_arguments=True
    )
    execute(schema, fragments, ROOT, executor_class=CompilingExecutor)

    assert cache_of(schema).statistics()[:2] == (0, {Reason.MUTATION_ORDER: 1, Reason.FRAGMENT_VARIABLES: 1})


def test_an_execution_without_an_event_loop_is_counted() -> None:
    schema = new_schema()

    execute(schema, parse("{ name }"), ROOT, executor_class=EagerExecutor)
    first_operation(schema, "{ name }", EagerExecutor).execute(None, root=ROOT)

    assert cache_of(schema).statistics()[:2] == (0, {Reason.NO_LOOP: 2})


# Threads


class GuardedDict(OrderedDict[Any, Any]):
    """A dict whose order and entries change only while `is_locked`."""

    is_locked: Callable[[], bool]

    def _guarded(name: str) -> Any:  # type: ignore[misc]
        method = getattr(OrderedDict, name)

        def guarded(self: "GuardedDict", *given: Any, **named: Any) -> Any:
            assert self.is_locked()
            return method(self, *given, **named)

        return guarded

    __setitem__ = _guarded("__setitem__")
    __delitem__ = _guarded("__delitem__")
    clear = _guarded("clear")
    move_to_end = _guarded("move_to_end")
    pop = _guarded("pop")
    popitem = _guarded("popitem")


async def test_the_order_of_a_cache_changes_only_under_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, code = new_schema(), source._CodeCache(2_000, 2_000)
    cache = cache_of(schema)
    cache.max_operations, cache.max_fields = 2, 3
    for owner, name in ((cache, "_operations"), (cache, "_compiled"), (code, "_makers")):
        guarded = GuardedDict()
        guarded.is_locked = owner._lock.locked
        monkeypatch.setattr(owner, name, guarded)
    monkeypatch.setattr(source, "_CACHE", code)

    held = first_operation(schema, "{ name me { name } }", CompilingExecutor)
    for number in (1, 2, 1, 3, 4):
        await run_by_core(schema, f"{{ a{number}: name b: name }}")
        held.execute(None, root=ROOT)
    held.forget()
    cache.clear()

    assert cache.statistics().evicted
    assert code._makers


@contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_threads_share_a_cache_that_evicts_and_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, rounds = 6, 30
    schema = new_schema()
    cache: OperationCache = cache_of(schema)
    cache.max_operations, cache.max_fields = 4, 9
    monkeypatch.setattr(source, "_CACHE", source._CodeCache(3_000, 3_000))
    documents = [parse(f"{{ {'name ' * number} me {{ a{number}: name }} }}") for number in range(1, 6)]
    held = [operation_of(CompiledExecutor, schema, each, each.definitions[0]) for each in documents]  # type: ignore[arg-type]
    together = Barrier(threads)

    async def work(thread: int) -> int:
        wrong = 0
        for turn in range(rounds):
            number = (thread + turn) % len(documents)
            wanted = {"name": "x", "me": {f"a{number + 1}": "y"}}
            direct = held[number].execute(None, root=ROOT)
            through = execute(schema, documents[number], ROOT, executor_class=CompilingExecutor)
            wrong += [direct, through] != [ExecutionResult(wanted, None)] * 2
            if turn % 10 == thread:
                cache.clear()
            if turn % 7 == thread:
                held[number].forget()
        return wrong

    def in_thread(thread: int) -> int:
        together.wait()
        return asyncio.run(work(thread))

    with frequent_switches(), ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(in_thread, range(threads))) == 0

    counts = cache.statistics()
    assert counts.compiled + sum(counts.interpreted.values()) == 2 * threads * rounds
    assert counts.interpreted.keys() <= {Reason.NOT_YET}
    assert counts.fields == sum(fields for _, fields in cache._compiled.values())
    assert counts.fields <= cache.max_fields
    assert len(cache._operations) <= cache.max_operations
    compiled = {id(operation) for operation in held if operation.compiled is not None}
    assert compiled <= cache._compiled.keys()
    cache.clear()
    assert cache.statistics()[2:4] == (0, 0)
    assert source._CACHE._characters == sum(map(len, source._CACHE._makers))
