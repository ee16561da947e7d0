"""Cricket: matches and all that belongs to them (section 5 of the contract), a module for each table."""
