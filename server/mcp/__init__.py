"""The Model Context Protocol (MCP): trusted documents as tools of language models."""
