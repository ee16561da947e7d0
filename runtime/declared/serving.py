"""The settings of serving: addresses, identity, documents and limits."""

from runtime.declared.variable import FRACTION, NUMBER, REDIS, SECONDS, SECRET, SWITCH, Concern, Variable, one

PROCESSES = Concern(
    "Addresses and processes",
    (
        Variable(
            ("GATEWAY_HOST", "GATEWAY_PORT"),
            "an address; a port",
            "`127.0.0.1`, `8000`",
            "the address to listen on",
            "`--host`, `--port`",
        ),
        one(
            "GATEWAY_WORKERS",
            "1 to 256, or `auto`",
            "one process for everything",
            "the number of serving processes, or `auto` for the number of CPUs "
            "([how](operations.md#several-processes-on-one-host))",
            "`--workers`",
        ),
        one(
            "GATEWAY_PUBLIC_URL",
            "an http(s) URL",
            "the address it listens on",
            "the gateway's address for clients, used in picture URLs; with https, responses have "
            "`Strict-Transport-Security`",
        ),
        one(
            "GATEWAY_ALLOWED_ORIGINS",
            "origins, separated by commas, at most 100",
            "none",
            "other origins whose pages may send requests (CORS), open WebSockets, and fetch and upload pictures",
        ),
        one(
            "GATEWAY_TRUSTED_PROXIES",
            "networks (CIDR), separated by commas",
            "none",
            "networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted",
        ),
        one(
            "GATEWAY_HTTP_PROFILE",
            "`2025` or `draft2026`",
            "`2025`",
            "the status codes of GraphQL over HTTP ([http.md](http.md#graphql-over-http))",
        ),
        one(
            "GATEWAY_DRAIN_SECONDS",
            "a number of seconds, 0 to 10",
            "`0` on this machine, else `5`",
            "seconds between SIGTERM and the end of accepting connections, in which `/readyz` fails, for load "
            "balancers to notice",
        ),
        one(
            "GATEWAY_WATCHDOG_SECONDS",
            "a number of seconds, at least 1; 0 disables it",
            "`30`",
            "seconds without a turn of the event loop after which the process writes its stacks to standard error and "
            "exits with status 70 ([how](operations.md#hung-processes))",
        ),
    ),
)
IDENTITY = Concern(
    "Secrets and tokens",
    (
        one(
            "GATEWAY_SECRET",
            SECRET,
            "embedded engine: generated once; `aws` or a URL: required",
            "the key that signs cursors, and tokens if there is no JWKS. Like other secrets it can be in a file, "
            "`GATEWAY_SECRET_FILE` ([how](deployment.md#secrets-in-files))",
        ),
        one(
            "GATEWAY_OTHER_SECRETS",
            "texts of at least 32 characters, separated by commas, at most 100",
            "none",
            "further secrets that are accepted for cursors, tokens and picture URLs while `GATEWAY_SECRET` changes "
            "([how](operations.md#rotating-keys))",
        ),
        one(
            "GATEWAY_USER_ID_SECRET",
            SECRET,
            "`GATEWAY_SECRET`",
            "the key that encrypts ids of photo users; keep it when you rotate `GATEWAY_SECRET`",
        ),
        Variable(
            ("GATEWAY_JWKS_URL", "GATEWAY_JWT_ISSUER", "GATEWAY_JWT_AUDIENCE"),
            "an http(s) URL; texts",
            "none",
            "the key set, issuer and audience of tokens: all three or none "
            "([how](infrastructure.md#the-identity-provider))",
        ),
        one("GATEWAY_ROLE_CLAIM", "the name of a claim", "`role`", "the claim with the role"),
    ),
)
DOCUMENTS = Concern(
    "Documents, the schema and cost",
    (
        Variable(
            ("GATEWAY_DOCUMENTS", "GATEWAY_DOCUMENTS_MODE"),
            "a file or `table`; `off`, `log`, `prefer` or `enforce`",
            "none; `prefer` with documents",
            "the source of documents that clients name by id, a manifest or the table; and the mode "
            "([how](persisted-documents.md#documents-by-id))",
        ),
        one(
            "GATEWAY_DOCUMENTS_ADMIN_BYPASS", SWITCH, "`on`", "whether admins may run other documents in enforced mode"
        ),
        one("GATEWAY_APQ", SWITCH, "`on`", "automatic persisted queries; off if documents are enforced"),
        one(
            "GATEWAY_EXECUTOR",
            "`compiled` or `interpreted`",
            "`compiled`",
            "`interpreted`: graphql-core executes all operations; none is compiled",
        ),
        one(
            "GATEWAY_INCREMENTAL",
            SWITCH,
            "`off`",
            "`on`: the schema has `@defer` and `@stream` ([how](incremental-delivery.md))",
        ),
        one(
            "GATEWAY_FEDERATION",
            SWITCH,
            "`off`",
            "`on`: the schema has `_service` and `_entities`, for a router of Apollo Federation 2 "
            "([federation.md](federation.md))",
        ),
        one(
            "GATEWAY_INTROSPECTION",
            SWITCH,
            "`on`",
            "`off`: only admins may introspect, and error messages suggest no names",
        ),
        one(
            "GATEWAY_MAX_COST",
            "a number of read units; 0 disables the limit",
            "`2000`",
            "the largest estimate of an operation; an operation that reads far more than its estimate is stopped "
            "([how](limits-and-cost.md#cost-estimates))",
        ),
        one(
            "GATEWAY_DOCUMENT_LIMITS",
            "pairs such as `tokens=2000,depth=20`",
            "[these](limits-and-cost.md#limits)",
            "limits of documents that are not registered ([how](limits-and-cost.md#limits))",
        ),
        one(
            "GATEWAY_EXPLAIN",
            "`off`, `admin`, `user` or `anyone`",
            "`admin`; in the demo on this machine `user`",
            "the callers that may request explanations",
        ),
        one(
            "GATEWAY_DEADLINE_SECONDS",
            SECONDS,
            "`30`",
            "seconds that an operation, or an event of a subscription, may take",
        ),
    ),
)
CAPACITY = Concern(
    "Budgets and limits",
    (
        Variable(
            ("GATEWAY_BUDGET_UNITS", "GATEWAY_BUDGET_UNITS_PER_SECOND"),
            FRACTION,
            "`5000`, `200`",
            "a user's budget in read units, and its refill per second; administrators have ten times as much; 0 units "
            "disable the limit ([how](limits-and-cost.md#budgets))",
        ),
        Variable(
            ("GATEWAY_ANONYMOUS_BUDGET_UNITS", "GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND"),
            FRACTION,
            "`2500`, `100`",
            "the same for an address without a token",
        ),
        one(
            "GATEWAY_REDIS_URL",
            REDIS,
            "none: each process has its own",
            "the Redis in which processes share callers' budgets and the texts of automatic persisted queries",
        ),
        one(
            "GATEWAY_MAX_CONCURRENT",
            NUMBER,
            "`256`",
            "concurrent operations of a process; as many more wait briefly; 0 disables the limit, as for all "
            "`GATEWAY_MAX_…` ([how](limits-and-cost.md#load-shedding))",
        ),
        one("GATEWAY_MAX_CONCURRENT_PER_CALLER", NUMBER, "`32`", "concurrent operations of one caller"),
        one("GATEWAY_MAX_LAG_SECONDS", FRACTION, "`1`", "seconds of event loop lag above which operations are refused"),
        Variable(
            ("GATEWAY_MAX_CONNECTIONS", "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS"),
            NUMBER,
            "`10000`, `512`",
            "connections of a process, and of a client's address",
        ),
        Variable(
            ("GATEWAY_MAX_WEBSOCKETS", "GATEWAY_MAX_WEBSOCKETS_PER_CALLER"),
            NUMBER,
            "`5000`, `200`",
            "WebSockets of a process, and of a caller",
        ),
        Variable(
            ("GATEWAY_MAX_SUBSCRIPTIONS", "GATEWAY_MAX_SUBSCRIPTIONS_PER_CALLER"),
            NUMBER,
            "`20000`, `200`",
            "subscriptions of a process, and of a caller",
        ),
        one(
            "GATEWAY_MAX_OPERATIONS_PER_WEBSOCKET",
            NUMBER,
            "`100`",
            "operations that may be open on one WebSocket",
        ),
        one(
            "GATEWAY_MAX_WAITING_BYTES",
            NUMBER,
            "`262144`",
            "bytes of events that wait for one slow client, in all its subscriptions "
            "([how](subscriptions.md#slow-subscribers))",
        ),
        Variable(
            ("GATEWAY_MAX_WEBSOCKET_MESSAGES", "GATEWAY_MAX_WEBSOCKET_MESSAGES_PER_SECOND"),
            f"{NUMBER}; {FRACTION}",
            "`1000`, `200`",
            "messages that a WebSocket may send at once, and per second; the gateway reads further ones later "
            "([how](websocket.md#the-protocol))",
        ),
        Variable(
            ("GATEWAY_MAX_INCOMING_BYTES", "GATEWAY_MAX_INCOMING_BYTES_PER_CALLER"),
            NUMBER,
            "`4294967296`, `268435456`",
            "bytes of incomplete uploads in the folder of pictures: of all users, and of one user "
            "([how](photos.md#limits-of-uploads))",
        ),
    ),
)
