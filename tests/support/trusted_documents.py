"""Documents for the tests of trusted documents, and the settings of a gateway that has them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from server.admission.callers import Caller
from server.documents.persisted.manifest import sha256_of
from server.documents.settings import DocumentSettings, DocumentsMode
from server.settings import Settings

AREAS = "query Areas { areas }"

CATEGORIES = "query Categories { categories }"

ANSWER = {"data": {"areas": ["Downtown", "Midtown", "Harbor", "Old Town", "University", "Riverside"]}}

HASH = sha256_of(AREAS)

NAMED = {"areas": AREAS}

ANYBODY = Caller(None)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(NAMED | {sha256_of(CATEGORIES): CATEGORIES}))
    return path


@pytest.fixture
def mode() -> DocumentsMode:
    return DocumentsMode.ENFORCE


@pytest.fixture
def settings(settings: Settings, manifest: Path, mode: DocumentsMode) -> Settings:
    return replace(settings, documents=DocumentSettings(mode, str(manifest)))
