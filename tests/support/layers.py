"""Steps and data of the tests of layers."""

# Each layer imports only itself and what stands to its right.
MAY_IMPORT = {
    "gateway": {"runtime", "server", "schema", "pipelines", "datastore"},
    "runtime": {"server", "schema", "resolvers", "pipelines", "datastore"},
    "server": {"jit", "datastore"},
    "jit": set(),
    "schema": {"resolvers", "datastore"},
    "resolvers": {"datastore"},
    "pipelines": {"datastore"},
    "datastore": set(),
}
