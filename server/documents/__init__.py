"""The preparation of documents: parsing, limits, validation and cost estimates, once for each text."""
