"""Pages in a browser: their look, their parts and how they are put together."""
