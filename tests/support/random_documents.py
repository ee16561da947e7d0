"""Random documents over a small schema that is difficult for the merging of fields."""

from random import Random

SCHEMA = """
interface Being { id: ID! name: String friend: Being self(at: Int, in: Where): Being things: [Thing] }
input Where { a: Int b: [Int] }
type Cat implements Being {
  id: ID! name: String! friend: Being self(at: Int, in: Where): Cat things: [Thing] lives: Int tags: [String!]
  box: Box other: Dog
}
type Dog implements Being {
  id: ID! name: String friend: Being self(at: Int, in: Where): Dog things: [Thing] lives: String tags: [String!]!
  box: Box! other: Cat
}
type Box { size: Int name: [String] pet: Pet }
union Pet = Cat | Dog
union Thing = Box | Cat
type Query { being: Being cat(id: ID): Cat dog: Dog pet: Pet things: [Thing] box: Box }
"""
# Each type with its leaves and its fields with their types. Unknown fields are selected too.
LEAVES = {
    "Query": ["__typename"],
    "Being": ["id", "name", "__typename"],
    "Cat": ["id", "name", "lives", "tags", "__typename"],
    "Dog": ["id", "name", "lives", "tags", "__typename"],
    "Box": ["size", "name"],
    "Pet": ["__typename"],
    "Thing": ["__typename"],
}
FIELDS = {
    "Query": {"being": "Being", "cat": "Cat", "dog": "Dog", "pet": "Pet", "things": "Thing", "box": "Box"},
    "Being": {"friend": "Being", "self": "Being", "things": "Thing"},
    "Cat": {"friend": "Being", "self": "Cat", "things": "Thing", "box": "Box", "other": "Dog"},
    "Dog": {"friend": "Being", "self": "Dog", "things": "Thing", "box": "Box", "other": "Cat"},
    "Box": {"pet": "Pet"},
    "Pet": {},
    "Thing": {},
}
MAY_BE = {
    "Query": ["Query"],
    "Being": ["Being", "Cat", "Dog"],
    "Cat": ["Cat", "Being", "Pet", "Thing"],
    "Dog": ["Dog", "Being", "Pet"],
    "Box": ["Box", "Thing"],
    "Pet": ["Cat", "Dog", "Being"],
    "Thing": ["Box", "Cat"],
}
FRAGMENTS = [(f"{kind}{number}", kind) for kind in ("Being", "Cat", "Dog", "Box") for number in (1, 2)]
ARGUMENTS = ["", "", "(at: 1)", "(at: 2)", "(in: {a: 1, b: [1]}, at: 1)", "(at: 1, in: {b: [1], a: 1})", '(at: "1")']
ALIASES = ["", "", "", "x: ", "y: ", "name: ", "friend: "]


def document(rng: Random) -> str:
    """Return an operation with fragments, each spread at least once and without cycles. Its fields may conflict."""
    maker = _Maker(rng)
    parts = [maker.selection_set("Query", 4)]
    for place, (name, kind) in enumerate(FRAGMENTS):
        if name in maker.spread:
            maker.after = place + 1
            parts.append(f"fragment {name} on {kind} {maker.selection_set(kind, 2)}")
    return " ".join(parts)


class _Maker:
    """`after` is the position of the first fragment that may be spread: later ones cannot form a cycle."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.spread: set[str] = set()
        self.after = 0

    def selection_set(self, kind: str, depth: int) -> str:
        return "{" + " ".join(self._selection(kind, depth) for _ in range(self._rng.randint(1, 4))) + "}"

    def _selection(self, kind: str, depth: int) -> str:
        choice, choose = self._rng.random(), self._rng.choice
        spreads = [name for name, on in FRAGMENTS[self.after :] if on in MAY_BE[kind]]
        if depth > 0 and choice < 0.4 and FIELDS[kind]:
            name, beneath = choose(sorted(FIELDS[kind].items()))
            given = choose(ARGUMENTS) if name == "self" else ""
            return f"{choose(ALIASES)}{name}{given}{self.selection_set(beneath, depth - 1)}"
        if depth > 0 and choice < 0.6:
            on = choose(MAY_BE[kind])
            return f"... on {on} {self.selection_set(on, depth - 1)}"
        if choice < 0.8 and spreads:
            name = choose(spreads)
            self.spread.add(name)
            return f"...{name}"
        return choose(ALIASES) + choose(LEAVES[kind])
