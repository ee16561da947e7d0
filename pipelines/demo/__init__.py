"""The demo's data and its life: invented people, posts, photos and matches."""
