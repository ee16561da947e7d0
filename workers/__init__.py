"""`serve --workers N`: the process that starts N others, each of which serves, and one for the work behind them.

It holds the sockets that they listen on, and runs the embedded engine. A worker is told on a line of its own (a pair of
sockets) that it is to leave, and tells there that it is ready; the end of the line means that its supervisor is gone.
"""
