"""`serve --workers N`: a supervisor process that starts N workers, which serve, and one worker for background jobs.

The supervisor holds the sockets that the workers listen on, and runs the embedded engine. It shares a socket pair, the
channel, with each worker. The worker writes there that it is ready, and a heartbeat each second from then on. The
supervisor writes nothing. To stop a worker it shuts down its sending direction; the end of the supervisor process has
the same effect.
"""
