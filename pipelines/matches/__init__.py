"""The live score pipeline, from match data providers to stored state, Live Activities and subscriptions."""
