"""Sources of match data: SportMonks, Cricsheet recordings and their replay.

`provider.Provider` is the interface.
"""
