"""How a post is doing, live."""

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.queues import OverflowPolicy

POST_ENGAGEMENT = AccessPattern(
    id="FEED-S1",
    question="The likes and comments of a post as they are counted; the post is read at the start",
    table=FEED,
    # For one that is shown to followers only: whether the caller still follows, at each event.
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("postEngagement",),
    key="PK = POST#<id>, SK = META",
    consistent=True,
    when_slow=OverflowPolicy.LATEST,
)

PATTERNS = (POST_ENGAGEMENT,)
