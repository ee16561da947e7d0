"""Admission control: budgets, quotas, rate limits, load shedding and deadlines."""
