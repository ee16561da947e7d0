"""The social feed: users, posts, likes, comments, follows, home feeds, notifications and leaderboards."""
