"""The gateway as a process: its container of objects, background jobs, command line and supervisor."""
