"""GraphQL types and fields of the social feed: a module for each entity."""

from schema.feeds.comments import Comment, CommentMutations, CommentQueries
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
from schema.feeds.posts import EngagementSubscriptions, Post, PostMutations, PostQueries
from schema.feeds.search import SearchQueries
from schema.feeds.users import User, UserMutations, UserQueries
from schema.systems import System

SYSTEM = System(
    queries=(
        UserQueries,
        PostQueries,
        CommentQueries,
        LikeQueries,
        FollowQueries,
        HomeFeedQueries,
        NotificationQueries,
        LeaderboardQueries,
        SearchQueries,
    ),
    mutations=(UserMutations, PostMutations, CommentMutations, LikeMutations, FollowMutations, NotificationMutations),
    subscriptions=(HomeFeedSubscriptions, NotificationSubscriptions, EngagementSubscriptions),
    nodes=(User, Post, Comment, Notification),
)
