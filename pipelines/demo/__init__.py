"""Demo data and its generators: invented sightings, earthquakes, posts, photos and matches."""
