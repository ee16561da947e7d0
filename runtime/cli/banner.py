"""The lines that `serve` prints when it has started."""

from datastore.database import StoreOptions
from datastore.engine.programs import Dynoxide
from datastore.objects.local import LocalObjects
from runtime.console import note, warn
from runtime.container import Gateway
from server.observability.log_lines import MessagesFormat
from server.version import running_build

READY_SECONDS = 2.0


async def welcome(gateway: Gateway, options: StoreOptions, *, alone: bool = True) -> None:
    """Print the address, the set-up, the demo tokens, and warnings. `alone` is whether one process does all work."""
    _print_set_up(gateway, options, alone=alone)
    await _warn_unless_ready(gateway)


def _print_set_up(gateway: Gateway, options: StoreOptions, *, alone: bool) -> None:
    settings = gateway.settings
    if MessagesFormat.is_json:
        # Without the tokens of the demo: a log is kept, and read by others.
        fields = {
            "url": f"{settings.url}/graphql",
            "store": _store_name(options),
            "version": str(running_build()),
            "setUp": gateway.server.summary(alone=alone),
        }
        note("The gateway has started.", fields=fields)
        _warn_of_address(gateway)
        return
    note(f"GraphQL and GraphiQL  {settings.url}/graphql")
    if alone and (tools := gateway.server.persisted_documents.tools):
        note(f"{'MCP':<21} {settings.url}/mcp, with {len(tools)} {'tool' if len(tools) == 1 else 'tools'}")
    note(f"{'Store':<21} {_store_name(options)}{_replacement_engine(gateway)}")
    note(f"{'Set up':<21} {gateway.server.summary(alone=alone)}")
    tokens = gateway.server.demo_tokens()
    for token in tokens:
        note(f"{token['name'] + ' token':<21} {token['token']}")
    if settings.demo and options.in_aws:
        note("Demo tokens are not offered: they would open tables in AWS to every user of this machine.")
    elif settings.demo and not settings.loopback:
        note("Demo tokens are not offered: this gateway listens beyond this machine.")
    elif tokens:
        note("Send a token as the header Authorization: Bearer <token>. GraphiQL has them already.")
    _warn_of_address(gateway)
    note("Stop with Ctrl-C.")


def _warn_of_address(gateway: Gateway) -> None:
    if isinstance(gateway.objects, LocalObjects) and not gateway.settings.is_reachable:
        warn(f"the URLs of pictures begin with {gateway.settings.reached_at}; set GATEWAY_PUBLIC_URL.")


def _store_name(options: StoreOptions) -> str:
    if options.embedded:
        return "embedded, in memory only" if options.memory else f"embedded, data in {options.data_dir}"
    return f"DynamoDB in {options.named_region or 'your AWS region'}" if options.in_aws else options.store


def _replacement_engine(gateway: Gateway) -> str:
    """Return a note about the embedded engine if it is not the default one."""
    engine = gateway.database.engine if gateway.database else None
    if engine is None or engine.program == Dynoxide.name:
        return ""
    return f" (the engine is {engine.program}: {Dynoxide.name} is not installed here)"


async def _warn_unless_ready(gateway: Gateway) -> None:
    state = await gateway.readiness(READY_SECONDS)
    if state["store"] == "unreachable":
        warn("the store cannot be reached. Until it can be, requests fail with UNAVAILABLE.")
    elif state["store"] == "tables missing":
        missing = ", ".join(state["missing"])
        warn(f"the store lacks the tables {missing}. Create them with `gateway.py tables create`.")
