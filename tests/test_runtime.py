"""What the process holds while it serves."""

import pytest
from conftest import SECRET

from datastore.database import StoreOptions
from edge.settings import Settings
from runtime import Gateway


@pytest.mark.parametrize(
    ("store", "offered"),
    [
        ("embedded", ["Demo user", "Admin", "System"]),
        ("http://127.0.0.1:1", ["Demo user", "Admin", "System"]),
        ("aws", []),
    ],
)
def test_the_demo_offers_tokens_but_never_for_aws(store: str, offered: list[str]) -> None:
    gateway = Gateway(Settings(secret=SECRET, demo=True), StoreOptions(store))
    assert [token["name"] for token in gateway.demo_tokens()] == offered
