"""The photo library: photos, persons and faces on them, users, uploads, livestreams and logged events."""
