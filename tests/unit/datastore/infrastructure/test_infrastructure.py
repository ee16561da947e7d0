"""The CloudFormation template and the Terraform file that are generated from the declarations."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from datastore.database import Database, StoreOptions
from datastore.dynamodb.client import Client
from datastore.infrastructure import tables
from datastore.infrastructure.alarms import AlarmLevel
from datastore.infrastructure.cloudformation import cloudformation
from datastore.infrastructure.iam_roles import ROLES
from datastore.infrastructure.terraform import terraform
from datastore.keyspace import TABLES
from datastore.model.access_patterns import Index, Table
from tests.support.command_line import run_here
from tests.support.store_engines import ROOT, new_prefix
from tests.support.tables import ALL, PLAIN, RICH, described_shape, ttl

KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
NAME = re.compile(r"[A-Za-z0-9_.-]+")


@pytest.fixture
def store_options(engine: str) -> StoreOptions:
    """Return options of a store without tables."""
    return StoreOptions(store=engine, prefix=new_prefix())


def template(prefix: str = "", **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cloudformation(ALL, prefix, **given))
    return found


def configuration(prefix: str = "", **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(terraform(ALL, prefix, **given))
    return found


def of_type(found: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: resource for name, resource in found["Resources"].items() if resource["Type"] == kind}


# --- CloudFormation ---------------------------------------------------------------------------------------------------


async def test_the_template_creates_the_same_tables(database: Database) -> None:
    client = database.client
    await tables.create(client, ALL, database.prefix)
    prefix = f"{database.prefix}cf_"

    found = template(prefix)

    assert found["Parameters"]["TablePrefix"]["Default"] == prefix
    for resource in of_type(found, "AWS::DynamoDB::Table").values():
        await _make(client, resource["Properties"], prefix)
    declared = await tables.describe(client, ALL, database.prefix)
    exported = await tables.describe(client, ALL, prefix)
    assert [described_shape(one, prefix) for one in exported] == [
        described_shape(one, database.prefix) for one in declared
    ]
    for table in ALL:
        copy = Table(f"cf_{table.name}", table.partition, table.sort)
        assert await ttl(database, copy) == await ttl(database, table)


async def _make(client: Client, properties: dict[str, Any], prefix: str) -> None:
    """Create a table as CloudFormation does: CreateTable, then the settings that CreateTable does not accept."""
    properties["TableName"] = properties["TableName"]["Fn::Sub"].replace("${TablePrefix}", prefix)
    expiry = properties.pop("TimeToLiveSpecification", None)
    del properties["PointInTimeRecoverySpecification"]
    if "StreamSpecification" in properties:
        properties["StreamSpecification"] = {"StreamEnabled": True, **properties["StreamSpecification"]}
    del properties["DeletionProtectionEnabled"]  # tests discard the whole engine without deleting tables
    await client.call("CreateTable", properties)
    if expiry:
        name = properties["TableName"]
        await client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": expiry})


def test_tables_are_kept_when_the_stack_is_deleted() -> None:
    found = of_type(template(), "AWS::DynamoDB::Table")

    assert list(found)[:3] == ["BlipTable", "FeedTable", "FeedMetricsTable"]
    assert list(found)[-2:] == ["PlainTable", "RichAndRareTable"]
    assert len(found) == len(ALL)
    for resource in found.values():
        assert KEPT.items() <= resource.items()
        assert resource["Properties"]["DeletionProtectionEnabled"] is True
        assert resource["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert resource["Properties"]["Tags"] == [{"Key": "Application", "Value": "graphql-gateway"}]


@pytest.mark.parametrize("watched", AlarmLevel)
def test_references_of_the_template_exist(watched: AlarmLevel) -> None:
    found = template(level=watched, roles=ROLES)
    known = {*found["Parameters"], *found["Resources"]}

    refers = set(_referred(found))

    assert {name for name in refers if not name.startswith("AWS::")} <= known
    assert set(found["Parameters"]) <= refers  # every parameter is used
    assert set(_conditions(found)) == set(found.get("Conditions", ()))
    assert all(name.isalnum() for part in ("Parameters", "Resources", "Outputs") for name in found[part])


def _referred(part: Any) -> Iterator[str]:
    """Yield the parameters and resources that a part of a template refers to."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if name == "Ref":
            yield value
        elif name == "Fn::GetAtt":
            yield value[0]
        elif name == "Fn::Sub":
            yield from (text.partition(".")[0] for text in re.findall(r"\$\{([^}]+)\}", value))
        else:
            yield from _referred(value)


def _conditions(part: Any) -> Iterator[str]:
    for name, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if name == "Condition" and isinstance(value, str):
            yield value
        elif name == "Fn::If":
            yield value[0]
        else:
            yield from _conditions(value)


# --- Terraform --------------------------------------------------------------------------------------------------------


def test_the_terraform_file_equals_the_declarations() -> None:
    found = configuration("dev-")["resource"]["aws_dynamodb_table"]

    assert list(found) == [table.name.replace("-", "_") for table in ALL]
    assert [_declared(block) for block in found.values()] == [_declaration(table) for table in ALL]
    assert configuration("dev-")["variable"]["table_prefix"]["default"] == "dev-"


def _declared(block: dict[str, Any]) -> dict[str, Any]:
    return block | {"attribute": {one["name"]: one["type"] for one in block["attribute"]}}


def _declaration(table: Table) -> dict[str, Any]:
    attributes = {table.partition: "S"} | ({table.sort: "S"} if table.sort else {})
    for index in table.indexes:
        attributes |= {index.partition: "S"} | ({index.sort: index.sort_type} if index.sort else {})
    block: dict[str, Any] = {
        "name": f"${{var.table_prefix}}{table.name}",
        "billing_mode": "PAY_PER_REQUEST",
        "hash_key": table.partition,
        "attribute": attributes,
        "point_in_time_recovery": {"enabled": True},
        "deletion_protection_enabled": True,
        "tags": {"Application": "graphql-gateway"},
        "lifecycle": {"prevent_destroy": True},
    }
    block |= {"range_key": table.sort} if table.sort else {}
    block |= {"stream_enabled": True, "stream_view_type": table.stream} if table.stream else {}
    block |= {"ttl": {"attribute_name": table.ttl, "enabled": True}} if table.ttl else {}
    return block | ({"global_secondary_index": [_index(index) for index in table.indexes]} if table.indexes else {})


def _index(index: Index) -> dict[str, Any]:
    keys = {"name": index.name, "hash_key": index.partition} | ({"range_key": index.sort} if index.sort else {})
    if isinstance(index.projection, tuple):
        return {**keys, "projection_type": "INCLUDE", "non_key_attributes": list(index.projection)}
    return {**keys, "projection_type": index.projection}


@pytest.mark.parametrize("watched", AlarmLevel)
def test_references_of_the_terraform_file_exist(watched: AlarmLevel) -> None:
    found = configuration(level=watched, roles=ROLES)
    variables = {f"var.{name}" for name in found["variable"]}
    resources = {f"{kind}.{name}" for kind, blocks in found["resource"].items() for name in blocks}

    text = json.dumps([found["resource"], found["output"]])
    refers = set(re.findall(r"(?:var|aws_\w+)\.\w+", text))

    assert refers <= variables | resources | {"aws_partition.current"}
    assert variables <= refers
    # The bucket and its objects, in the policy of each role that reads and writes files.
    with_files = [role for role in ROLES if role.files]
    assert re.findall(r"data\.(\w+)\.(\w+)", text) == [("aws_partition", "current")] * 2 * len(with_files)
    assert found["data"] == {"aws_partition": {"current": {}}}


# --- Both -------------------------------------------------------------------------------------------------------------


def test_alarms_are_about_throttling_of_each_table_with_its_indexes() -> None:
    found = of_type(template(level=AlarmLevel.THROTTLING), "AWS::CloudWatch::Alarm")

    assert len(found) == 2 * len(ALL) + 1
    sums = found["RichAndRareWriteThrottleAlarm"]["Properties"]["Metrics"]
    assert [one["MetricStat"]["Metric"]["Dimensions"] for one in sums[:-1]] == [
        [{"Name": "TableName", "Value": {"Ref": "RichAndRareTable"}}, *index]
        for index in ([], *[[{"Name": "GlobalSecondaryIndexName", "Value": one.name}] for one in RICH.indexes])
    ]
    assert {one["MetricStat"]["Metric"]["MetricName"] for one in sums[:-1]} == {"WriteThrottleEvents"}
    assert sums[-1] == {"Id": "sum", "Expression": "SUM(METRICS())", "Label": "WriteThrottle", "ReturnData": True}
    age = found["FeedIteratorAgeAlarm"]
    assert age["Condition"] == "HasFeedFunction"
    assert age["Properties"]["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "FeedFunction"}}]


def test_alarms_about_errors_cover_the_operations_of_the_patterns() -> None:
    found = of_type(template(level=AlarmLevel.ALL), "AWS::CloudWatch::Alarm")

    operations = _operations(found["FeedPipelineSystemErrorsAlarm"])
    assert operations == [
        *("BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "TransactWriteItems", "UpdateItem")
    ]
    # Transactions of another table's patterns write to this table.
    assert "TransactWriteItems" in _operations(found["FeedMetricsSystemErrorsAlarm"])
    assert of_type(template(level=AlarmLevel.NOTHING), "AWS::CloudWatch::Alarm") == {}


def _operations(alarm: dict[str, Any]) -> list[str]:
    metrics = alarm["Properties"]["Metrics"][:-1]
    return [one["MetricStat"]["Metric"]["Dimensions"][-1]["Value"] for one in metrics]


def test_operations_that_nothing_uses_have_no_alarms() -> None:
    found = of_type(json.loads(cloudformation([PLAIN], level=AlarmLevel.ALL)), "AWS::CloudWatch::Alarm")
    assert list(found) == ["PlainReadThrottleAlarm", "PlainWriteThrottleAlarm"]


def test_no_alarm_has_more_metrics_than_cloudwatch_accepts() -> None:
    """CloudWatch accepts at most ten metrics in the expression of an alarm."""
    alarms = of_type(template(level=AlarmLevel.ALL), "AWS::CloudWatch::Alarm").values()
    assert max(len(alarm["Properties"].get("Metrics", ())) for alarm in alarms) <= 11
    assert len(template(level=AlarmLevel.ALL, roles=ROLES)["Resources"]) <= 500


def test_terraform_has_the_same_alarms_and_policies() -> None:
    stack, file = (
        template(level=AlarmLevel.ALL, roles=ROLES),
        configuration(level=AlarmLevel.ALL, roles=ROLES)["resource"],
    )

    alarms = [one["Properties"] for one in of_type(stack, "AWS::CloudWatch::Alarm").values()]
    assert [one["AlarmDescription"] for one in alarms] == [
        one["alarm_description"] for one in file["aws_cloudwatch_metric_alarm"].values()
    ]
    assert [len(one.get("Metrics", ())) for one in alarms] == [
        len(one.get("metric_query", ())) for one in file["aws_cloudwatch_metric_alarm"].values()
    ]
    policies = [one["Properties"]["PolicyDocument"] for one in of_type(stack, "AWS::IAM::ManagedPolicy").values()]
    written = [json.loads(one["policy"]) for one in file["aws_iam_policy"].values()]
    assert [_actions(one) for one in policies] == [_actions(one) for one in written]
    feed = {"Fn::Sub": "${FeedTable.Arn}/index/GSI1"}
    assert any(feed in one["Resource"] for policy in policies for one in policy["Statement"])
    assert "${aws_dynamodb_table.feed.arn}/index/GSI1" in json.dumps(written)


def _actions(policy: dict[str, Any]) -> list[tuple[list[str], int]]:
    return [(one["Action"], len(one["Resource"])) for one in policy["Statement"]]


@pytest.mark.proof
def test_the_same_declarations_give_the_same_text() -> None:
    code = """if True:
        from datastore.infrastructure.alarms import AlarmLevel
        from datastore.infrastructure.cloudformation import cloudformation
        from datastore.infrastructure.terraform import terraform
        from datastore.keyspace import TABLES
        from datastore.infrastructure.iam_roles import ROLES
        for export in (cloudformation, terraform):
            print(export(TABLES, level=AlarmLevel.ALL, roles=ROLES))
    """
    texts = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(texts[0]) > 100_000
    assert texts[0] == texts[1]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_table_is_valid_for_dynamodb(table: Table) -> None:
    """The local engine accepts any number of indexes. See also test_tables.py."""
    assert len(table.indexes) <= 20
    names = [table.name, *[index.name for index in table.indexes]]
    assert len(names) == len(set(names))
    assert all(3 <= len(name) <= 195 and NAME.fullmatch(name) for name in names)  # with a prefix of up to 60


# --- The command ------------------------------------------------------------------------------------------------------


def test_policies_are_printed_for_the_given_account() -> None:
    arguments = ("--iam", "--role", "lambda-feed", "--prefix", "x-", "--region", "cn-north-1", "--account", "123")

    policy = json.loads(run_here("tables", "export", *arguments).stdout)

    assert policy["Version"] == "2012-10-17"
    resources = [one for statement in policy["Statement"] for one in statement["Resource"]]
    assert "arn:aws-cn:dynamodb:cn-north-1:123:table/x-feed/stream/*" in resources
    assert not [one for one in resources if not one.startswith("arn:aws-cn:dynamodb:cn-north-1:123:table/x-feed")]


def test_policies_of_all_roles_leave_account_and_region_to_cloudformation() -> None:
    found = json.loads(run_here("tables", "export", "--iam").stdout)

    assert list(found) == [role.name for role in ROLES]
    text = json.dumps(found)
    assert "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/blip" in text
    assert "arn:${AWS::Partition}:s3:::${PhotoBucket}/*" in text


def test_a_template_has_policies_on_request() -> None:
    def policies(*arguments: str) -> list[str]:
        return list(of_type(json.loads(run_here("tables", "export", *arguments).stdout), "AWS::IAM::ManagedPolicy"))

    assert policies() == []
    assert policies("--policies", "--role", "ingest", "--role", "documents") == ["IngestPolicy", "DocumentsPolicy"]
    assert {"GatewayPolicy1", "GatewayPolicy2", "LambdaFeedPolicy"} <= set(policies("--policies"))
