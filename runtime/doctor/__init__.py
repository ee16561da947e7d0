"""The checks of the command `doctor`: the machine, the settings, the services and the store."""
