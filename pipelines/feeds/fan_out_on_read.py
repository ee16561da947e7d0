"""Authors with too many followers for a fan-out: their posts are merged into feeds when those are read.

The author is marked (`merging_since`), then each follower gets a source, then the author is marked again
(`merged_since`). A source holds since when its user follows, and a feed merges all posts of the author since then, also
those that were fanned out: what is in a feed twice has one key, and is shown once. So nobody misses a post if

- each follower has a source once `merged_since` is set. Who follows before the walk reads their page gets one from the
  walk. Who follows after it finds the first mark, and gets one by that (see `followings`); both read consistently, and
  the mark is older than the walk.
- no fan-out is left out before that. One that finds `merged_since` is left out. One that finds the first mark alone
  finishes the promotion and is left out then. One that found neither, or was begun before, runs to its end.

A post that is deleted must be taken out of feeds if it was ever fanned out. That was begun before the first mark, thus
the post was written before that, by a clock that may have gone wrong by some minutes: `merged_since` is so much later,
and only of posts before it entries are looked for. An author never goes back.
"""

from datetime import timedelta

from datastore.feeds.fan_out import AuthorSource
from pipelines.feeds.follower_fan_out import Walks

CLOCK_SKEW = timedelta(minutes=5)


async def promote(walks: Walks, author_id: str) -> None:
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
