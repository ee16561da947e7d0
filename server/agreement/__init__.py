"""The agreement of the settings of all gateways of an installation: their fingerprints, and a comparison of them."""
