"""Background jobs of the photo library: the janitor, and the removal of metadata from stored photos."""
