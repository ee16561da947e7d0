"""Matches in Cricsheet's JSON format."""
