"""`serve --workers N`: the process that starts N others, each of which serves, and one for the work behind them.

It holds the sockets that they listen on, and runs the embedded engine. It shares a pair of sockets, the line, with each
worker. The worker writes there that it is ready, and a heartbeat each second from then on. The supervisor writes
nothing: to have the worker leave it closes its direction of the line, which its own end does as well.
"""
