"""The settings of the store, of subscriptions, of the systems and of observability."""

from runtime.declared.variable import REDIS, SECONDS, SWITCH, Concern, Variable, one

STORE = Concern(
    "The store",
    (
        one(
            "GATEWAY_STORE",
            "`embedded`, `aws` or a URL",
            "`embedded`",
            "the store; a URL of an AWS host is treated as `aws` "
            "([how](infrastructure.md#addresses-credentials-and-clocks))",
            "`--store`",
        ),
        one(
            "GATEWAY_DATA_DIR",
            "a folder",
            "`.data`",
            "the directory of local data and the local secret",
            "`--data-dir`",
        ),
        Variable(
            (),
            "no variable",
            "off",
            "the embedded engine keeps nothing on disk; other commands with `--memory` join it",
            "`--memory`",
        ),
        one("GATEWAY_TABLE_PREFIX", "a text", "none", "the prefix of table names", "`--prefix`"),
        one("AWS_REGION", "the name of a region", "the profile's", "the AWS region", "`--region`"),
        one(
            "GATEWAY_SHARED_READS",
            SWITCH,
            "`on`",
            "`off`: no operation uses point reads that another operation has in flight or made in the last 250 ms "
            "([how](datastore.md#shared-reads))",
        ),
        one(
            "GATEWAY_SEARCH_URL",
            "a URL, such as `https://user:password@host:9200`",
            "local: a file in the data directory; AWS: no search",
            "the OpenSearch that holds the search index of posts and users ([how](feeds.md#search))",
        ),
        one(
            "GATEWAY_ENGINE_KEY",
            "32 to 128 letters, digits, - or _",
            "stored in `engine.key` in the data directory",
            "the access key of the embedded engine: required by `gateway.py engine`, and sent by clients of an engine "
            "at `--store URL` ([how](engines.md#the-access-key-of-the-embedded-engine))",
        ),
        one("DYNOXIDE_BINARY", "a file", "from npm, or PATH", "the executable of the embedded engine"),
    ),
)
LIVE = Concern(
    "Subscriptions",
    (
        one(
            "GATEWAY_BUS",
            f"{REDIS}, 6.2 or newer",
            "none: each process reads them itself",
            "the Redis through which processes share the reading of tables' streams for subscriptions "
            "([how](subscriptions.md#the-relay))",
            "`--bus`",
        ),
        one(
            "GATEWAY_POLL_INTERVAL_SECONDS",
            SECONDS,
            "`0.25`; for subscribers `0.02` if the store is not AWS",
            "seconds between reads of the tables' streams (for the feed's pipeline on AWS at least 1)",
        ),
        one(
            "GATEWAY_HEARTBEAT_SECONDS",
            SECONDS,
            "`12`",
            "seconds between heartbeats of a silent event stream, and between pings of a WebSocket",
        ),
    ),
)
SYSTEMS = Concern(
    "The systems",
    (
        one(
            "GATEWAY_DEMO",
            "true or false",
            "on when embedded",
            "demo data with some activity, and demo tokens for pages opened on this machine; never on AWS",
            "`--demo/--no-demo`",
        ),
        one(
            "GATEWAY_INGEST",
            "the name of a feed, a URL or a file",
            "none",
            "a USGS feed to ingest every minute",
            "`--ingest`",
        ),
        one(
            "GATEWAY_INGEST_HOSTS",
            "hosts, separated by commas, at most 100",
            "`earthquake.usgs.gov`",
            "the hosts of feeds that clients may ingest",
        ),
        one(
            "GATEWAY_FEED_PIPELINE",
            "true or false",
            "on when embedded",
            "also run the feed's pipeline and the daily statistics of earthquakes in this process",
            "`--feed-pipeline`",
        ),
        one(
            "GATEWAY_FAN_OUT_BOUND",
            "a whole number",
            "`10000`",
            "the number of followers above which an author's posts are merged when feeds are read",
            "`--fan-out-bound`",
        ),
        one(
            "GATEWAY_MATCHES",
            "`demo`, `sportmonks` or `none`",
            "`demo` in the demo",
            "the source of the live matches that this process polls",
            "`--matches`",
        ),
        Variable(
            ("SPORTMONKS_API_TOKEN", "SPORTMONKS_URL"), "a text; an http(s) URL", "none", "the SportMonks Cricket API"
        ),
        Variable(
            ("APNS_KEY_FILE", "APNS_KEY_ID", "APNS_TEAM_ID", "APNS_BUNDLE_ID", "APNS_URL"),
            "a file; texts; a URL",
            "pushes are logged instead of sent",
            "the credentials for Live Activities at Apple's push service",
        ),
        Variable(
            ("GATEWAY_AREAS", "GATEWAY_CATEGORIES"),
            "texts, separated by commas, at most 100",
            "those of a demo town",
            "the areas and categories of sightings",
        ),
        one(
            "GATEWAY_PHOTO_BUCKET",
            "the name of a bucket",
            "local: a folder; AWS: no uploads",
            "the S3 bucket for pictures; its credentials and region are the store's",
        ),
        one(
            "GATEWAY_PHOTO_METADATA",
            "`strip` or `keep`",
            "`strip`",
            "`strip`: originals are stored without location and other metadata; `keep`: originals are stored as "
            "uploaded, and only their owner and administrators see them ([how](photos.md#metadata))",
        ),
        one("GATEWAY_S3_URL", "an http(s) URL", "none", "a service that speaks S3's API, instead of AWS"),
    ),
)
OBSERVABILITY = Concern(
    "Logs, metrics and traces",
    (
        one(
            "GATEWAY_LOG_FORMAT",
            "`text` or `json`",
            "`text`",
            "the format of the log of all commands; with `json` each line is an object, each operation one line "
            "([how](observability.md#logs-metrics-and-traces))",
        ),
        Variable(
            ("GATEWAY_METRICS_PORT", "GATEWAY_METRICS_HOST"),
            "a port; an address",
            "none, `127.0.0.1`",
            "another address for `/metrics`, without a token",
            "`--metrics-port`, `--metrics-host`",
        ),
        one(
            "GATEWAY_METRICS_TOKEN",
            "at least 16 letters, digits, -, ., _, ~, + or /",
            "none",
            "a token for `/metrics`, in addition to tokens of admins and services",
        ),
        one(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "a URL",
            "none",
            "the destination of spans, like the other variables of OpenTelemetry",
        ),
        one(
            "GATEWAY_REVISION",
            "a text",
            "the commit of the clone",
            "the commit that [the version](operations.md#the-version) shows; the image's build sets it",
        ),
    ),
)
