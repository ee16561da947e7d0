"""The endpoints of DynamoDB in AWS: recognised by host name, with their region and the endpoint of their streams."""

from pathlib import Path
from typing import Any

import boto3
import pytest

from datastore.database import Database, StoreMisconfigured, StoreOptions, open_database
from datastore.dynamodb.endpoints import STREAMS_VARIABLE, TABLES_VARIABLE, addresses, aws_partition_of, is_aws_url
from datastore.objects import NoObjects
from runtime.container import Gateway, followed_every
from runtime.jobs import pipeline_pace
from server.settings import Settings
from tests.support.command_line import refused_in_a_line, run_here
from tests.support.fault_proxy import Proxy
from tests.support.served import SECRET

VPC = "https://vpce-0a1b-2c3d.dynamodb.eu-central-1.vpce.amazonaws.com"
CHINA_VPC = "https://vpce-0a1b-2c3d.dynamodb.cn-north-1.vpce.amazonaws.com.cn"
# Host, region, host of the streams
IN_AWS = [
    ("dynamodb.eu-central-1.amazonaws.com", "eu-central-1", "streams.dynamodb.eu-central-1.amazonaws.com"),
    ("DynamoDB.EU-Central-1.AmazonAWS.com", "eu-central-1", "streams.dynamodb.eu-central-1.amazonaws.com"),
    ("dynamodb.eu-central-1.api.aws", "eu-central-1", "streams-dynamodb.eu-central-1.api.aws"),
    ("dynamodb-fips.us-east-1.amazonaws.com", "us-east-1", "streams.dynamodb-fips.us-east-1.amazonaws.com"),
    ("dynamodb-fips.us-east-1.api.aws", "us-east-1", "streams-dynamodb-fips.us-east-1.api.aws"),
    ("123456789012.ddb.us-east-1.amazonaws.com", "us-east-1", "streams.dynamodb.us-east-1.amazonaws.com"),
    ("123456789012.ddb.us-east-1.api.aws", "us-east-1", "streams-dynamodb.us-east-1.api.aws"),
    ("dynamodb.us-gov-west-1.amazonaws.com", "us-gov-west-1", "streams.dynamodb.us-gov-west-1.amazonaws.com"),
    ("dynamodb.cn-north-1.amazonaws.com.cn", "cn-north-1", "streams.dynamodb.cn-north-1.amazonaws.com.cn"),
    ("dynamodb.us-gov-west-1.api.aws", "us-gov-west-1", "streams-dynamodb.us-gov-west-1.api.aws"),
    ("dynamodb-fips.us-gov-east-1.api.aws", "us-gov-east-1", "streams-dynamodb-fips.us-gov-east-1.api.aws"),
    (
        "dynamodb.cn-north-1.api.amazonwebservices.com.cn",
        "cn-north-1",
        "streams-dynamodb.cn-north-1.api.amazonwebservices.com.cn",
    ),
    ("dynamodb.us-iso-east-1.c2s.ic.gov", "us-iso-east-1", "streams.dynamodb.us-iso-east-1.c2s.ic.gov"),
    ("dynamodb.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1", "streams.dynamodb.us-isob-east-1.sc2s.sgov.gov"),
    ("dynamodb.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1", "streams.dynamodb.eusc-de-east-1.amazonaws.eu"),
    ("dynamodb.eu-north-9.amazonaws.com", "eu-north-9", "streams.dynamodb.eu-north-9.amazonaws.com"),
]
ELSEWHERE = [
    "embedded",
    "http://127.0.0.1:8000",
    "http://dynamodb:8000",
    "https://dynamodb.example.com",
    "https://dynamodb.eu-central-1.amazonaws.com.example.com",
    "http://ec2-203-0-113-1.eu-central-1.compute.amazonaws.com:8000",
    "http://dynamodb-1234.eu-central-1.elb.amazonaws.com",
    "http://streams.eu-central-1.amazonaws.com",
    "http://[",
]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.parametrize(("host", "region", "streams"), IN_AWS, ids=[host for host, _, _ in IN_AWS])
async def test_a_host_of_aws_determines_its_region_and_its_streams(host: str, region: str, streams: str) -> None:
    url = f"https://{host}"
    options = StoreOptions(url, region="us-west-2")
    assert (options.in_aws, options.named_region) == (True, region)
    async with open_database(options) as database:
        endpoint = database.endpoint
    assert (endpoint.tables(), endpoint.streams(), endpoint.region) == (url, f"https://{streams}", region)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_other_hosts_are_not_aws(url: str) -> None:
    assert not is_aws_url(url)
    assert not StoreOptions(url).in_aws


@pytest.mark.parametrize(
    ("variables", "tables", "streams"),
    [
        ({}, "dynamodb.eu-west-1.amazonaws.com", "streams.dynamodb.eu-west-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "dynamodb.eu-west-1.api.aws", "streams-dynamodb.eu-west-1.api.aws"),
        (
            {"AWS_USE_FIPS_ENDPOINT": "true"},
            "dynamodb-fips.eu-west-1.amazonaws.com",
            "streams.dynamodb-fips.eu-west-1.amazonaws.com",
        ),
    ],
    ids=["plain", "dual-stack", "fips"],
)
def test_without_an_endpoint_botocore_derives_both(
    variables: dict[str, str], tables: str, streams: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert addresses(boto3.Session(region_name="eu-west-1"), None) == (f"https://{tables}", f"https://{streams}")


async def test_the_streams_of_a_vpc_endpoint_must_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match=f"set {STREAMS_VARIABLE} to its URL"):
        async with open_database(StoreOptions(VPC)):
            pass

    streams = "https://vpce-9-9.dynamodb-streams.eu-central-1.vpce.amazonaws.com"
    monkeypatch.setenv(STREAMS_VARIABLE, streams)
    async with open_database(StoreOptions(VPC)) as database:
        assert database.endpoint.streams() == streams

    monkeypatch.setenv(STREAMS_VARIABLE, "https://streams.dynamodb.eu-central-1.amazonaws.com")
    async with open_database(StoreOptions(VPC)) as database:
        assert database.endpoint.region == "eu-central-1"

    monkeypatch.delenv(STREAMS_VARIABLE)
    (tmp_path / "config").write_text(
        f"[default]\nservices = here\n[services here]\ndynamodb_streams =\n  endpoint_url = {streams}\n"
    )
    async with open_database(StoreOptions(VPC)) as database:
        assert database.endpoint.streams() == streams


async def test_a_vpc_endpoint_in_china_has_the_domain_of_china(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreMisconfigured, match=STREAMS_VARIABLE):
        async with open_database(StoreOptions(CHINA_VPC)):
            pass
    streams = "https://vpce-9-9.dynamodb-streams.cn-north-1.vpce.amazonaws.com.cn"
    monkeypatch.setenv(STREAMS_VARIABLE, streams)
    async with open_database(StoreOptions(CHINA_VPC)) as database:
        endpoint = database.endpoint
        assert (endpoint.tables(), endpoint.streams(), endpoint.region) == (CHINA_VPC, streams, "cn-north-1")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("dynamodb.amazonaws.com", "names no AWS region"),
        ("dynamodb.mars-1.amazonaws.com", "names no AWS region"),
        ("dynamodb.eu-central-1.amazonaws.com.cn", "names no AWS region"),
        ("dynamodb.vpce.amazonaws.com", "names no AWS region"),
        ("streams.dynamodb.eu-central-1.amazonaws.com", f"set {STREAMS_VARIABLE}"),
        ("streams-dynamodb.eu-central-1.api.aws", f"set {STREAMS_VARIABLE}"),
        ("vpce-1.dynamodb-streams.eu-central-1.vpce.amazonaws.com", f"set {STREAMS_VARIABLE}"),
    ],
)
def test_a_host_of_aws_that_cannot_be_used_is_refused(host: str, words: str, tmp_path: Path) -> None:
    done = run_here("serve", "--store", f"https://{host}", GATEWAY_DATA_DIR=str(tmp_path))
    refused_in_a_line(done, 2, "Invalid value for --store")
    assert words in done.stderr


async def test_a_dual_stack_endpoint_for_which_botocore_has_no_streams_is_refused() -> None:
    with pytest.raises(StoreMisconfigured, match=f"set {STREAMS_VARIABLE}"):
        async with open_database(StoreOptions("https://dynamodb.eu-isoe-west-1.api.cloud-aws.adc-e.uk")):
            pass


@pytest.mark.parametrize("variable", [TABLES_VARIABLE, STREAMS_VARIABLE, "AWS_ENDPOINT_URL"])
@pytest.mark.parametrize("rest", ["/dynamodb", "/?a=b"])
async def test_an_endpoint_with_a_path_is_refused(variable: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:8000{rest}")
    with pytest.raises(StoreMisconfigured, match=f"{variable}.*set it to a scheme, a host and a port"):
        async with open_database(StoreOptions("aws", region="eu-west-1")):
            pass


async def test_requests_for_tables_and_streams_go_to_their_own_endpoints(
    engine: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(engine) as tables, Proxy(engine) as streams:
        monkeypatch.setenv(TABLES_VARIABLE, f"{tables.url}/")
        monkeypatch.setenv(STREAMS_VARIABLE, streams.url)
        async with open_database(StoreOptions("aws", region="eu-west-1")) as aws:
            await aws.client.call("ListTables", {"Limit": 1})
            await aws.client.call("ListStreams", {"Limit": 1})
        assert (tables.operations(), streams.operations()) == (["ListTables"], ["ListStreams"])


# --- Differences with AWS ---------------------------------------------------------------------------------------------

PLAIN = "https://dynamodb.eu-central-1.api.aws"


@pytest.mark.parametrize("store", ["aws", PLAIN, VPC])
def test_aws_is_polled_no_more_often_than_it_allows_at_any_endpoint(store: str) -> None:
    options = StoreOptions(store)
    assert followed_every(options.in_aws, None) == 0.25
    assert pipeline_pace(options.in_aws, None).poll_seconds == 1.0


@pytest.mark.parametrize("store", ["aws", PLAIN, VPC])
def test_a_store_in_aws_is_not_treated_as_a_demo_at_any_endpoint(store: str) -> None:
    gateway = Gateway(Settings(secret=SECRET, demo=True), StoreOptions(store))
    assert gateway.server.demo_tokens() == []
    assert isinstance(gateway.objects, NoObjects)


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ((), {}, "Error: Set GATEWAY_SECRET"),
        (("--workers", "2"), {"GATEWAY_SECRET": SECRET}, "Error: several workers on AWS need a bus"),
    ],
    ids=["secret", "workers"],
)
def test_a_store_in_aws_has_the_requirements_of_aws_at_any_endpoint(
    arguments: tuple[str, ...], variables: dict[str, Any], words: str, tmp_path: Path
) -> None:
    done = run_here("serve", "--store", PLAIN, *arguments, "--data-dir", tmp_path, **variables)
    refused_in_a_line(done, 2, words)


async def test_pictures_are_in_the_region_of_the_tables_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for region, found in ((None, "eu-central-1"), ("us-west-2", "us-west-2")):
        settings = Settings(secret=SECRET, photo_bucket="photos")
        objects = Gateway(settings, StoreOptions(PLAIN, region=region)).objects
        objects.open()
        assert objects.origin() == f"https://photos.s3.{found}.amazonaws.com"
        objects.close()


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("eu-central-1", "aws"),
        ("us-gov-east-1", "aws-us-gov"),
        ("cn-northwest-1", "aws-cn"),
        ("us-isob-east-1", "aws-iso-b"),
        ("eusc-de-east-1", "aws-eusc"),
        ("local", "aws"),
    ],
)
def test_rights_name_the_partition_of_their_region(region: str, partition: str) -> None:
    assert aws_partition_of(region) == partition
