"""The part of the schema that each system exports."""

from dataclasses import dataclass

from schema.nodes import Node


@dataclass(frozen=True, slots=True)
class System:
    """The classes with a system's root fields, and its types with a global id."""

    queries: tuple[type, ...]
    mutations: tuple[type, ...]
    subscriptions: tuple[type, ...] = ()
    nodes: tuple[type[Node], ...] = ()
