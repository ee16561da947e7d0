"""The credentials for APNs and the provider tokens."""

from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pipelines.matches.push.apns import ApnsPushService
from pipelines.matches.push.apns_credentials import ApnsCredentials, CredentialsError
from pipelines.matches.push.push_service import PushOutcome, Sent
from tests.support.apns import KEY, PEM
from tests.support.apns_pushes import TOKEN, UPDATE, delivery, make, pushes
from tests.support.apns_server import ApnsAnswer, ApnsServer, server
from tests.support.served import NOON, Clock

__all__ = ["delivery", "make", "server"]

PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


async def test_the_provider_token_is_signed_with_the_key_and_renewed_after_50_minutes(
    server: ApnsServer, delivery: ApnsPushService, clock: Clock
) -> None:
    await delivery.send(TOKEN, UPDATE)
    clock.forward(minutes=49)
    await delivery.send(TOKEN, UPDATE)
    clock.forward(minutes=1)
    await delivery.send(TOKEN, UPDATE)

    tokens = [request.bearer for request in server.requests]
    assert tokens[0] == tokens[1] != tokens[2]
    for token, issued in ((tokens[0], NOON), (tokens[2], NOON + timedelta(minutes=50))):
        claims = jwt.decode(token, PUBLIC, algorithms=["ES256"], options={"verify_iat": False})
        assert claims == {"iss": "TEAM123456", "iat": int(issued.timestamp())}
        assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": "ABCDE12345", "typ": "JWT"}


async def test_an_expired_provider_token_is_renewed_once_for_all_sends(
    server: ApnsServer, delivery: ApnsPushService, clock: Clock
) -> None:
    await delivery.send(TOKEN, UPDATE)
    old = server.requests[0].bearer
    clock.forward(minutes=30)
    server.answer = lambda request: ApnsAnswer(403, "ExpiredProviderToken") if request.bearer == old else ApnsAnswer()

    summary = await delivery.send_all(pushes(50))

    assert summary.outcomes == {PushOutcome.DELIVERED: 50}
    assert len({request.bearer for request in server.requests} - {old}) == 1


async def test_refused_credentials_are_logged_once_and_pause_sending(
    server: ApnsServer, delivery: ApnsPushService, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda _: ApnsAnswer(403, "InvalidProviderToken")

    first = await delivery.send(TOKEN, UPDATE)
    summary = await delivery.send_all(pushes(500))

    assert first == Sent(PushOutcome.FAILED, "InvalidProviderToken")
    assert summary.reasons == {"InvalidProviderToken": 500}
    assert len(server.requests) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


RSA = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"key": "no key"}, "key"),
        ({"key": RSA}, "P-256"),
        ({"key_id": "short"}, "key_id"),
        ({"team_id": "lowercase1"}, "team_id"),
        ({"bundle_id": "com example"}, "bundle_id"),
        ({"bundle_id": ""}, "bundle_id"),
        ({"url": "http://api.push.apple.com"}, "url"),
    ],
)
def test_invalid_credentials_are_refused_with_the_name_of_the_field(wrong: dict[str, str], named: str) -> None:
    right = {"key": PEM, "key_id": "ABCDE12345", "team_id": "TEAM123456", "bundle_id": "com.example.cricket"}

    with pytest.raises(CredentialsError, match=named) as refusal:
        ApnsCredentials(**right | wrong)

    assert "PRIVATE" not in str(refusal.value)
    assert PEM[40:80] not in repr(ApnsCredentials(**right))
