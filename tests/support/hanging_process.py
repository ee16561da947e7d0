"""A process that receives SIGTERM while its event loop hangs."""

import threading

from server.uvicorn import end_process_in

end_process_in(0.1)
threading.Event().wait()
