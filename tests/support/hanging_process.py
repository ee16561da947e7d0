"""A process that is to end, and whose event loop would not."""

import threading

from server.uvicorn import end_process_in

end_process_in(0.1)
threading.Event().wait()
