"""The commands that use the search index: `serve`, `pipeline search` and `search`, each in its own process."""

import json
import signal
from pathlib import Path

import pytest

from tests.support.command_line import GatewayProcess, refused_in_a_line, run_command, run_here, serve_process
from tests.support.until import until_blocking

# Each test starts a gateway's processes.
pytestmark = pytest.mark.proof

SEARCH = '{ searchPosts(query: "%s", first: 100) { nodes { postId } } }'
CREATE = 'mutation { createPost(input: {text: "%s", postId: "%s"}) { postId } }'
MATCHES_OFF = {"GATEWAY_MATCHES": "none"}


def found(gateway: GatewayProcess, query: str) -> list[str]:
    return [node["postId"] for node in gateway.data(SEARCH % query, gateway.token())["searchPosts"]["nodes"]]


@pytest.mark.timeout(150)
def test_a_gateway_finds_written_posts_and_its_index_can_be_rebuilt(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serve_process(folder, **MATCHES_OFF) as gateway:
        assert gateway.data(CREATE % ("A zebra at dawn", "z1"), gateway.token())
        until_blocking(lambda: found(gateway, "zebr") == ["z1"])

        status = json.loads(run_command("search", "status", "--json", "--data-dir", folder).stdout)
        assert status["posts"] > 1
        assert status["users"] > 1
        assert (status["builtAt"] is not None, status["building"]) == (True, None)
        done = run_command("search", "rebuild", "--data-dir", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(" users indexed\n")
        assert found(gateway, "zebra dawn") == ["z1"]
        assert gateway.stop(signal.SIGTERM) < 20
    assert "Traceback" not in gateway.output
    modes = {
        path.name: oct(path.stat().st_mode & 0o777) for path in [folder / "search", *(folder / "search").iterdir()]
    }
    assert modes == {"search": "0o700"} | {name: "0o600" for name in modes if name != "search"}

    (folder / "search" / "feed.sqlite").write_bytes(b"damaged" * 1000)
    with serve_process(folder, **MATCHES_OFF) as gateway:
        until_blocking(lambda: found(gateway, "zebra") == ["z1"])


@pytest.mark.timeout(150)
def test_the_index_of_a_store_in_memory_is_in_memory_and_all_workers_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serve_process(folder, "--memory", "--workers", "2", "--no-demo", **MATCHES_OFF) as gateway:
        token = run_here("token", "--user", "ada", "--data-dir", str(folder)).stdout.split()[-1]
        assert gateway.data('mutation { createUser(input: {name: "Ada"}) { userId } }', token)
        assert gateway.data(CREATE % ("A zebra at dawn", "z1"), token)

        def ids() -> list[str]:
            return [node["postId"] for node in gateway.data(SEARCH % "zebra", token)["searchPosts"]["nodes"]]

        until_blocking(lambda: ids() == ["z1"])
        assert [ids() for _ in range(20)] == [["z1"]] * 20
        assert not (folder / "search").exists()
        shown = run_command("search", "status", "--memory", "--data-dir", folder).stdout
        assert "posts      1\n" in shown
        gateway.stop(signal.SIGTERM)
    assert run_command("search", "status", "--memory", "--data-dir", folder).stdout.startswith("posts      0\n")


@pytest.mark.parametrize("command", [["search", "rebuild"], ["search", "status"], ["pipeline", "search"]])
def test_tables_in_aws_need_an_opensearch(command: list[str], tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    done = run_command(*command, "--store", "aws", "--region", "eu-central-1", "--data-dir", tmp_path, **keys)

    refused_in_a_line(done, 2, "set GATEWAY_SEARCH_URL")


def test_an_invalid_url_of_a_search_host_is_reported_in_one_line(tmp_path: Path) -> None:
    done = run_here("search", "status", "--data-dir", str(tmp_path), GATEWAY_SEARCH_URL="ftp://ada:secret@host")

    refused_in_a_line(done, 1, "GATEWAY_SEARCH_URL must be an http(s) URL")
    assert "secret" not in done.stderr
