"""Street sightings: sightings with their confirmations, reporters and watches (BLIP-1 to BLIP-8)."""
