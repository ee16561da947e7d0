"""Demo data and its generators: invented sightings, earthquakes, posts, photos and matches."""

from pathlib import Path

# The manifest of the documents that a demo serves, all of them tools.
DOCUMENTS = Path(__file__).parent / "data" / "documents.json"
