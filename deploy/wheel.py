"""The build of the wheel: `pipx install .` installs it with GraphiQL and the embedded engine."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENGINES = Path("node_modules", "@dynoxide")
GRAPHIQL = Path("web", "dist")


class Hook(BuildHookInterface[Any]):
    """The step of hatchling that builds GraphiQL and adds it and the engine to the wheel.

    Without Node.js the wheel contains what `make setup` or an earlier build left, and possibly neither of the two.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build GraphiQL if necessary, and list the files that are not in the repository.

        An editable installation runs from the clone, which has them. Raises `SystemExit` if npm fails.
        """
        if version == "editable" or self.target_name != "wheel":
            return
        root = Path(self.root)
        if not (root / GRAPHIQL / "index.html").is_file():
            _build_graphiql(root)
        included = build_data["force_include"]
        if (root / GRAPHIQL).is_dir():
            included[str(root / GRAPHIQL)] = GRAPHIQL.as_posix()
        # The build runs outside of the project's environment, so that the folder is not on the path.
        sys.path.insert(0, self.root)
        from datastore.engine.programs import npm_platform

        engine = ENGINES / npm_platform()
        if (root / engine).is_dir():
            included[str(root / engine)] = engine.as_posix()
            # The engine is a program for this platform, and Python's part is for all.
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _build_graphiql(root: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        print(
            "GraphiQL and the embedded engine are left out of the wheel: install Node.js 20 or newer.", file=sys.stderr
        )
        return
    for command in (
        ["ci", "--include=optional", "--no-fund", "--no-audit", "--loglevel=error"],
        ["run", "--silent", "build"],
    ):
        try:
            subprocess.run([npm, *command], cwd=root, check=True, stdout=sys.stderr)
        except subprocess.CalledProcessError as failure:
            raise SystemExit(
                f"GraphiQL could not be built: npm {command[0]} ended with status {failure.returncode}."
            ) from None
