"""A call that never returns to the event loop."""


def spin() -> None:
    while True:
        pass
