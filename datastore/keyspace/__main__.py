"""Print the page `docs/access-patterns.md`: `python -m datastore.keyspace`."""

from datastore.keyspace.page import page

if __name__ == "__main__":
    print(page(), end="")
