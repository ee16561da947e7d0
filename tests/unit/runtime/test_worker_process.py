"""What a supervisor passes to its workers."""

import inspect
import json
from pathlib import Path

import pytest

from datastore.database import StoreOptions
from pipelines.demo import DOCUMENTS
from runtime.cli.serve import serve
from runtime.configuration import settings_of
from runtime.supervisor.worker_process import OPTIONS_OF_SETTINGS, OPTIONS_OF_STORE, worker_options, worker_settings
from server.documents.settings import DocumentsMode
from tests.support.served import SECRET

# The settings that every option of `serve` sets, each other than its default.
GIVEN = {
    "host": "0.0.0.0",
    "port": 8001,
    "demo": True,
    "ingest": "all_hour",
    "matches": "demo",
    "feed_pipeline": True,
    "fan_out_bound": 7,
    "metrics_port": 9000,
    "metrics_host": "0.0.0.0",
    "bus": "redis://127.0.0.1:6379",
}


def test_a_worker_has_the_settings_of_its_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    store = StoreOptions("http://127.0.0.1:1", tmp_path, prefix="east__", region="eu-west-1")
    settings = settings_of(store, tmp_path, **GIVEN)
    options = json.loads(json.dumps(worker_options(settings, store)))
    assert worker_settings(options) == (settings, store)
    assert settings.documents.source == str(DOCUMENTS)
    in_memory = StoreOptions(data_dir=tmp_path, memory=True)
    assert worker_settings(worker_options(settings, in_memory))[1] == in_memory


def test_a_demo_has_documents_unless_the_environment_configures_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreOptions("embedded")
    assert settings_of(store, tmp_path).documents.source is None
    assert settings_of(store, tmp_path, demo=True).documents.mode is DocumentsMode.PREFER
    monkeypatch.setenv("GATEWAY_DOCUMENTS_MODE", "off")
    assert settings_of(store, tmp_path, demo=True).documents.source is None
    monkeypatch.delenv("GATEWAY_DOCUMENTS_MODE")
    monkeypatch.setenv("GATEWAY_DOCUMENTS", "own.json")
    assert settings_of(store, tmp_path, demo=True).documents.source == "own.json"


def test_a_worker_gets_every_option_of_serve() -> None:
    options = set(inspect.signature(serve).parameters) - {"context", "workers", "data_dir"}
    names = {"matches" if name == "source" else name for name in options}
    assert names == {*OPTIONS_OF_SETTINGS, *OPTIONS_OF_STORE}
    assert set(GIVEN) == set(OPTIONS_OF_SETTINGS)
