"""Resolvers of earthquakes, their statistics, and the cost model of the field `earthquakes`."""
