"""The executor of the gateway's schema."""

from jit.strawberry_fields import StrawberryExecutor


class GatewayExecutor(StrawberryExecutor):
    """Compiles what is executed again. Records are of the types of the schema by their classes."""

    types_by_class = True


class Interpreting(GatewayExecutor):
    """Leaves all to graphql-core."""

    compile_after = 0
