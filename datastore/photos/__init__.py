"""The photo library: photos, the people on them, those who upload them, livestreams and what is logged."""
