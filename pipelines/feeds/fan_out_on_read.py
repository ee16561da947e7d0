"""Fan-out on read: the posts of authors with too many followers are merged into feeds when those are read.

The promotion of an author marks the author (`merging_since`), gives each follower a source, and marks the author again
(`merged_since`). A source holds the time since which its user follows. A feed merges all posts of the author since that
time, including those that were fanned out: an entry and a merged post have one key, and are shown once. No reader
misses a post, for two reasons:

- Each follower has a source once `merged_since` is set. The walk over the followers gives a source to those who follow
  before it reads their page. Those who follow later find the first mark and get a source by it (see `follow_backfill`);
  both read consistently, and the mark is older than the walk.
- No fan-out is left out before that. A fan-out that finds `merged_since` is left out. A fan-out that finds the first
  mark alone completes the promotion and is then left out. One that found neither, or began earlier, runs to its end.

A deleted post must be removed from feeds if it was ever fanned out. Its fan-out began before the first mark, so the
post is older than the mark, by a clock that may be off by some minutes. `merged_since` is later by these minutes, and
entries are searched only for posts before it. An author is never demoted.
"""

from datetime import timedelta

from datastore.feeds.fan_out import AuthorSource
from pipelines.feeds.follower_fan_out import FollowerFanOut

CLOCK_SKEW = timedelta(minutes=5)


async def promote(walks: FollowerFanOut, author_id: str) -> None:
    """Have the author's posts merged from now on. Can be cut at any time, and run again or twice at once."""
    job = f"sources:{author_id}"
    tables = walks.tables()
    # One after the other: a mark that is still under way when the read has failed would come at any time later.
    merging_since = await tables.begin_merging(author_id)
    progress = await tables.progress(job)
    if progress is None or not progress.done:
        await walks.run(AuthorSource(author_id), progress, job)
        await walks.finish(job)
    await walks.tables().merge(author_id, merging_since + CLOCK_SKEW)
