"""GraphQL types and fields of the social feed: a module for each entity."""

import strawberry

from schema.feeds.comments import Comment, CommentMutations, CommentQueries
from schema.feeds.engagement import EngagementSubscriptions
from schema.feeds.follows import FollowMutations, FollowQueries
from schema.feeds.home_feeds import HomeFeedQueries, HomeFeedSubscriptions
from schema.feeds.leaderboards import LeaderboardQueries
from schema.feeds.likes import LikeMutations, LikeQueries
from schema.feeds.notifications import (
    Notification,
    NotificationMutations,
    NotificationQueries,
    NotificationSubscriptions,
)
from schema.feeds.posts import Post, PostMutations, PostQueries
from schema.feeds.search import SearchQueries
from schema.feeds.users import User, UserMutations, UserQueries

NODES = [Comment, Notification, Post, User]


@strawberry.type
class FeedQueries(
    UserQueries,
    PostQueries,
    CommentQueries,
    LikeQueries,
    FollowQueries,
    HomeFeedQueries,
    NotificationQueries,
    LeaderboardQueries,
    SearchQueries,
):
    pass


@strawberry.type
class FeedMutations(
    UserMutations,
    PostMutations,
    CommentMutations,
    LikeMutations,
    FollowMutations,
    NotificationMutations,
):
    pass


@strawberry.type
class FeedSubscriptions(HomeFeedSubscriptions, NotificationSubscriptions, EngagementSubscriptions):
    pass
