"""Credentials and limits for the tests of APNs."""

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.matches.push.apns import ApnsLimits
from pipelines.matches.push.apns_credentials import ApnsCredentials
from tests.support.apns_server import ApnsServer

KEY = ec.generate_private_key(ec.SECP256R1())
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
# Short delays between retries, and a long time limit for a response on a busy machine.
LIMITS = ApnsLimits(backoff=Backoff(initial=0.01, maximum=0.05, attempts=4))


def credentials(server: ApnsServer) -> ApnsCredentials:
    return ApnsCredentials(PEM, "ABCDE12345", "TEAM123456", "com.example.cricket", server.url)
