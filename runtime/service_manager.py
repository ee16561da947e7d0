"""Messages to the service manager that started this process, by systemd's protocol (sd_notify)."""

import os
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"


def report_ready(environment: Mapping[str, str] = os.environ) -> None:
    """Report that the process has started, if the service manager waits for it (`Type=notify`).

    Raises `OSError` if the service manager's socket cannot be used.
    """
    address = environment.get(VARIABLE)
    if not address:
        return
    # An address that begins with @ is in the abstract namespace.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"READY=1", name)
