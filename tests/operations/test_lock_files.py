"""The lock files hold the dependencies of pyproject.toml, with hashes and without addresses of registries."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.store_engines import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES: dict[str, list[str]] = {
    "requirements.txt": DECLARED["project"]["dependencies"],
    "requirements-dev.txt": [*DECLARED["project"]["dependencies"], *DECLARED["dependency-groups"]["dev"]],
    "requirements-lambda.txt": DECLARED["dependency-groups"]["lambda"],
    "requirements-ministack.txt": DECLARED["dependency-groups"]["ministack"],
}
PIN = re.compile(
    r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+?)(?: ;.*)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE
)


def locked(name: str) -> dict[str, Version]:
    return {_normal(package): Version(version) for package, version in PIN.findall((ROOT / name).read_text())}


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_a_lock_file_has_every_declared_dependency_in_an_allowed_version(name: str) -> None:
    versions = locked(name)

    for requirement in map(Requirement, DEPENDENCIES[name]):
        version = versions.get(_normal(requirement.name))
        assert version is not None, f"{name} lacks {requirement.name}: run make lock"
        assert requirement.specifier.contains(version), f"{name} has {requirement.name} {version}: run make lock"


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_a_lock_file_has_hashes_and_no_address_of_a_registry(name: str) -> None:
    text = (ROOT / name).read_text()

    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith(("#", "--hash="))]
    assert len(lines) == len(locked(name)) > 0
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-lambda.txt"])
def test_a_production_lock_file_has_the_versions_that_the_tests_use(name: str) -> None:
    assert locked(name).items() <= locked("requirements-dev.txt").items()
