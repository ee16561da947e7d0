"""Storage in DynamoDB: records and access patterns by system, and the mechanisms beneath them.

A system's package (`sightings`, `earthquakes`, `feeds`, `matches`, `photos`) has a class for each noun, with one method
for each access pattern of `keyspace`. The mechanisms know no table: `dynamodb` sends requests, `session` is one
request's view of the tables, `change_streams` reads the tables' streams. `database.open_database` opens a store.
"""
