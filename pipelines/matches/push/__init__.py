"""Push notifications of Live Activities through Apple's push service."""
