"""Redis URLs: a gateway checks the whole URL when it starts, and never shows its password."""

import pytest

from datastore.redis.urls import check_redis_url
from tests.support.command_line import refused_in_a_line, run_here

WORD = "hidden-word"


@pytest.mark.parametrize(
    "url",
    [
        "redis://bus",
        "redis://bus:6379/3",
        f"redis://user:{WORD}%23%2F@bus/?db=3&client_name=gateway",
        "redis://[::1]:6379/0",
        "rediss://bus?ssl_cert_reqs=none",
        "rediss://bus?ssl_min_version=771&ssl_check_hostname=false",
        f"unix://user:{WORD}@/run/redis.sock?db=2&protocol=3",
    ],
)
def test_options_of_the_client_are_accepted(url: str) -> None:
    check_redis_url(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"kafka://user:{WORD}@bus", "must be a URL of Redis that begins with redis://, rediss:// or unix://"),
        (f"redis:{WORD}", "must be a URL of Redis that begins with"),
        (f"redis://:{WORD}@bus:99999/0", "the part after the scheme is invalid"),
        (f"redis://:{WORD}@bus:port/0", "the part after the scheme is invalid"),
        (f"redis://:a#{WORD}@bus/0", "the part after the scheme is invalid"),
        (f"redis://user:{WORD}@", "must name a host"),
        (f"redis://:{WORD}@.bus", "must name a host that can be looked up"),
        ("unix://", "must name the path of a socket"),
        (f"redis://:{WORD}@bus/{WORD}", "must have the number of a database"),
        (f"redis://:{WORD}@bus/0/1", "must have the number of a database"),
        (f"redis://:{WORD}@bus?db=abc", "must have a number as the option db"),
        (f"redis://:{WORD}@bus?db=1&db=2", "has the option db twice"),
        (f"redis://:{WORD}@bus?protocol=9", "must have 2 or 3 as the option protocol"),
        (f"redis://:{WORD}@bus?nonsense=1", "has an option that is unknown or that the gateway sets itself: nonsense"),
        (f"redis://bus?{WORD}=1", "has an option that is unknown or that the gateway sets itself: one of its options"),
        (f"redis://:{WORD}@bus?socket_timeout=1", "that the gateway sets itself: socket_timeout"),
        (f"redis://:{WORD}@bus?decode_responses=1", "that the gateway sets itself: decode_responses"),
        (f"redis://:{WORD}@bus?ssl_ca_certs=/etc/ssl", "that the gateway sets itself: ssl_ca_certs"),
        (f"redis://:{WORD}@bus?{WORD}", "the part after the scheme is invalid"),
        (f"rediss://:{WORD}@bus?ssl_ca_certs=/{WORD}.pem", "names a certificate file or key file that does not exist"),
        (f"rediss://:{WORD}@bus?ssl_cert_reqs={WORD}", "the value of an option is invalid"),
        (f"rediss://:{WORD}@bus?ssl_ca_data={WORD}", "the value of an option is invalid"),
        (f"rediss://:{WORD}@bus?ssl_min_version=5", "the value of an option is invalid"),
    ],
)
def test_unsupported_options_are_refused_and_passwords_not_shown(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")) as refusal:
        check_redis_url(url)
    assert WORD not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.mark.parametrize("given", [{"GATEWAY_BUS": ""}, {"GATEWAY_REDIS_URL": ""}], ids=lambda given: next(iter(given)))
@pytest.mark.parametrize("rest", ["?nonsense=1", "/abc", "?db=abc"])
def test_serve_refuses_such_a_url_in_one_line(given: dict[str, str], rest: str) -> None:
    (name,) = given
    done = run_here("serve", "--memory", **{name: f"redis://user:{WORD}@127.0.0.1:1{rest}"})
    refused_in_a_line(done, 2, f"{name} ")
    assert WORD not in done.stderr
