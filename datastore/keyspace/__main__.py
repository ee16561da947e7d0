"""Write the pages in `docs/access-patterns/`: `python -m datastore.keyspace`."""

from datastore.keyspace.page import pages, write_pages

if __name__ == "__main__":
    write_pages("access-patterns", pages())
