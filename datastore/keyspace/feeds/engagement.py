"""The live engagement of a post: its counts of likes and comments."""

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.queues import OverflowPolicy

POST_ENGAGEMENT = AccessPattern(
    id="FEED-S1",
    question="The counts of likes and comments of a post as they change; the post is read at the start",
    table=FEED,
    # For a followers-only post, each event reads whether the caller still follows.
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("postEngagement",),
    key="PK = POST#<id>, SK = META",
    consistent=True,
    when_slow=OverflowPolicy.LATEST,
)

PATTERNS = (POST_ENGAGEMENT,)
