"""What callers, addresses and the process may have at once: budgets, connections, operations in hand."""
