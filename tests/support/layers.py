"""The import rules of the packages."""

# Each layer imports only itself and these layers.
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
