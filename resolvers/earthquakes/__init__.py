"""Resolvers of earthquakes, their statistics and the cost model of `earthquakes`."""
