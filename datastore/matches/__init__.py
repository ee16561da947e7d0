"""Cricket matches (section 5 of the contract): records, reads and writes, with a module for each table."""
