"""Identity of callers and protection of pages: tokens, keys, origins, CORS, CSRF and response headers."""
