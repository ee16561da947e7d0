"""The photo library: who may ask what of it, and what is answered."""
