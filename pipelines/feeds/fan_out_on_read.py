"""Fan-out on read: the posts of authors with too many followers are merged into feeds when those are read.

The promotion of an author marks the author (`merging_since`), gives each follower a source, and marks the author again
(`merged_since`). A source contains the time since which its user follows. A feed merges all posts of the author since
that time, including fanned-out posts: an entry and a merged post have one key, and are shown once. No reader misses a
post, for two reasons:

- Each follower has a source once `merged_since` is set. The promotion writes a source for each user who follows before
  it reads their page. For later follows the backfill finds the first mark and writes the source (`follow_backfill`).
  Both read consistently, and the mark is older than the promotion's reads.
- No fan-out is skipped before that. A fan-out that finds `merged_since` is skipped. A fan-out that finds only the first
  mark completes the promotion and is then skipped. A fan-out that found neither, or began earlier, runs to its end.

A deleted post must be removed from feeds if it was ever fanned out. Its fan-out began before the first mark, so the
post is older than the mark, by a clock that may be off by some minutes. `merged_since` is later by these minutes, and
only posts before it are searched for entries. An author is never demoted.
"""

from datetime import timedelta

from datastore.feeds.fan_out import AuthorSource
from pipelines.feeds.follower_fan_out import FollowerFanOut

CLOCK_SKEW = timedelta(minutes=5)


async def promote(followers: FollowerFanOut, author_id: str) -> None:
    """Promote an author to fan-out on read. May be interrupted at any time, repeated, and run concurrently."""
    job = f"sources:{author_id}"
    tables = followers.tables()
    # Sequential: if the read failed while the mark was in flight, the mark could be written at any later time.
    merging_since = await tables.start_merging(author_id)
    progress = await tables.progress(job)
    if progress is None or not progress.done:
        await followers.run(AuthorSource(author_id), progress, job)
        await followers.finish(job)
    await followers.tables().complete_merging(author_id, merging_since + CLOCK_SKEW)
