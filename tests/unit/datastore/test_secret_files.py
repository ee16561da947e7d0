"""Secrets from files and from systemd's credentials."""

import os
from pathlib import Path

import pytest

from datastore.engine.access_key import KeyUnusable, key_in_environment
from datastore.secret_files import MAX_SECRET_BYTES, SECRETS, SecretUnusable, secret_in, with_secrets
from pipelines.matches.setup import MatchSource, SetupError, pipeline_setup
from server.settings import Misconfigured, from_environment
from tests.support.command_line import refused_in_a_line, run_here

SECRET = "a secret of a file that is long enough"
# The fields of settings that secrets set, with a valid value.
FIELDS = {
    "GATEWAY_SECRET": ("secret", SECRET),
    "GATEWAY_OTHER_SECRETS": ("other_secrets", SECRET),
    "GATEWAY_USER_ID_SECRET": ("user_id_secret", SECRET),
    "GATEWAY_METRICS_TOKEN": ("metrics_token", "t" * 16),
    "GATEWAY_BUS": ("bus", "redis://:word@bus:6379/0"),
    "GATEWAY_SEARCH_URL": ("search_url", "https://search.example"),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("source", ["file", "credential"])
def test_a_setting_is_read_from_a_file(name: str, source: str, tmp_path: Path) -> None:
    field, value = FIELDS[name]
    (tmp_path / name).write_text(f"{value}\n")
    environment = (
        {f"{name}_FILE": str(tmp_path / name)} if source == "file" else {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    given = from_environment({name: value})[field]
    assert from_environment(environment)[field] == given


def test_the_redis_of_the_budgets_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis://:word@redis:6379/0")
    assert from_environment({"GATEWAY_REDIS_URL_FILE": str(tmp_path / "url")})["capacity"].redis_url.endswith("/0")


def test_the_engines_key_and_the_providers_token_are_read_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("k" * 40)
    monkeypatch.delenv("GATEWAY_ENGINE_KEY", raising=False)
    monkeypatch.setenv("GATEWAY_ENGINE_KEY_FILE", str(path))
    assert key_in_environment() == "k" * 40
    assert pipeline_setup(MatchSource.SPORTMONKS, {"SPORTMONKS_API_TOKEN_FILE": str(path)}).sportmonks_token == "k" * 40
    path.unlink()
    with pytest.raises(KeyUnusable, match="GATEWAY_ENGINE_KEY_FILE"):
        key_in_environment()
    with pytest.raises(SetupError, match="SPORTMONKS_API_TOKEN_FILE"):
        pipeline_setup(MatchSource.SPORTMONKS, {"SPORTMONKS_API_TOKEN_FILE": str(path)})


def test_a_variable_has_priority_over_a_credential_and_excludes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "GATEWAY_SECRET"
    path.write_text(SECRET)
    own = {"GATEWAY_SECRET": "o" * 32}
    assert secret_in({**own, "CREDENTIALS_DIRECTORY": str(tmp_path)}, "GATEWAY_SECRET") == "o" * 32
    with pytest.raises(SecretUnusable, match=r"^Set only one of GATEWAY_SECRET and GATEWAY_SECRET_FILE\.$"):
        with_secrets({**own, "GATEWAY_SECRET_FILE": str(path)})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"\xff\xfe" * 20, "is not a text in UTF-8"),
        (b"s" * (MAX_SECRET_BYTES + 1), "has more than 65,536 bytes"),
    ],
)
def test_an_unusable_file_is_named_and_its_content_is_not(content: bytes | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Misconfigured) as refused:
        from_environment({"GATEWAY_SECRET_FILE": str(path)})
    assert str(refused.value) == f"GATEWAY_SECRET_FILE: {path} {problem}."


def test_a_credential_that_cannot_be_read_is_named_and_one_that_does_not_exist_is_not_set(tmp_path: Path) -> None:
    too_long = str(tmp_path / ("x" * 300))
    with pytest.raises(
        SecretUnusable, match=r"^The credential GATEWAY_SECRET: .* cannot be read: File name too long\.$"
    ):
        secret_in({"CREDENTIALS_DIRECTORY": too_long}, "GATEWAY_SECRET")
    assert secret_in({"CREDENTIALS_DIRECTORY": str(tmp_path)}, "GATEWAY_SECRET") is None


def test_the_secrets_of_files_do_not_enter_the_environment_of_child_processes(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    environment = {"GATEWAY_SECRET_FILE": str(path)}
    assert from_environment(environment)["secret"] == SECRET
    assert environment == {"GATEWAY_SECRET_FILE": str(path)}
    assert SECRET not in os.environ.values()


def test_a_command_ends_with_a_message_if_a_file_is_missing() -> None:
    done = run_here("serve", "--store", "aws", GATEWAY_SECRET_FILE="/none", AWS_REGION="eu-west-1")
    refused_in_a_line(done, 2, "GATEWAY_SECRET_FILE: /none cannot be read")


def test_every_secret_that_is_a_setting_is_tested() -> None:
    assert {*SECRETS} - {*FIELDS} == {"GATEWAY_REDIS_URL", "GATEWAY_ENGINE_KEY", "SPORTMONKS_API_TOKEN"}
