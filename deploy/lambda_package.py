"""Builds the archive of the feed's stream handler for AWS Lambda: `make lambda`. See docs/deployment.md for the set-up.

The archive contains the project's modules that the handler imports and the packages of requirements-lambda.txt, without
tests and unused services of botocore. Equal sources make an equal archive, byte for byte (with one version of zlib).
"""

import ast
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements-lambda.txt"
ENTRY = "pipelines.feeds.aws_lambda"
HANDLER = f"{ENTRY}.handler"
LAYERS = ("pipelines", "datastore")
# The earliest time that a zip file can represent.
NO_TIME = (1980, 1, 1, 0, 0, 0)
# botocore describes 400 services. Their descriptions are nine tenths of its size.
SERVICES = ("dynamodb", "dynamodbstreams", "sts")
LEFT_OUT = ("__pycache__", "bin", "tests")


def modules(entry: str = ENTRY) -> dict[str, Path]:
    """Return the project's modules that `entry` imports, directly or not, also inside functions, with their files."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or name in found or name.partition(".")[0] not in LAYERS:
            continue
        found[name] = path
        waiting += [*_imported(path), name.rpartition(".")[0]]
    return found


def _file(name: str) -> Path | None:
    """Return the file of a module or package; None for a package without `__init__.py`, and for other projects."""
    path = ROOT / name.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def fetch(folder: Path, python: str, machine: str) -> None:
    """Install the locked packages for Lambda's platform, verified by hash. Raise `CalledProcessError` on failure."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(folder), "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS)]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    subprocess.run([*command, "--platform", f"manylinux2014_{machine}"], check=True)


def contents(packages: Path) -> dict[str, Path]:
    """Return the files of the archive by their names in it."""
    own = {str(path.relative_to(ROOT)): path for path in modules().values()}
    installed = {str(path.relative_to(packages)): path for path in packages.rglob("*") if path.is_file()}
    return own | {name: path for name, path in installed.items() if _is_needed(Path(name))}


def _is_needed(name: Path) -> bool:
    if any(part in LEFT_OUT or part.endswith(".dist-info") for part in name.parts) or name.suffix == ".pyi":
        return False
    package, *inside = name.parts
    if package in ("boto3", "botocore") and inside[0] in ("data", "examples"):
        return len(inside) == 2 or inside[1] in SERVICES
    return True


def pack(packages: Path, archive: Path) -> tuple[int, int]:
    """Write the archive. Return its size and the size of its unpacked files, in bytes."""
    files = contents(packages)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as file:
        for name in sorted(files):
            info = ZipInfo(name, NO_TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = ZIP_DEFLATED
            file.writestr(info, files[name].read_bytes())
    return archive.stat().st_size, sum(path.stat().st_size for path in files.values())


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.11", help="the version of Lambda's runtime")
    parser.add_argument("--machine", default="x86_64", choices=["x86_64", "aarch64"], help="its architecture")
    parser.add_argument("--archive", type=Path, default=ROOT / "build" / "feed-lambda.zip")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        fetch(Path(folder), options.python, options.machine)
        packed, unpacked = pack(Path(folder), options.archive)
    print(f"{options.archive}: {packed / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked, for Python {options.python}")
    print(f"handler: {HANDLER}")


if __name__ == "__main__":
    main()
