"""Executors that compile each operation when it is executed for the first time."""

from jit import CompiledExecutor
from jit.strawberry import StrawberryExecutor


class CompilingExecutor(CompiledExecutor):
    compile_after = 1


class CompilingStrawberryExecutor(StrawberryExecutor):
    compile_after = 1
    types_by_class = True
