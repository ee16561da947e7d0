"""What works behind the photo library: its janitor, and the pictures of the demo."""
