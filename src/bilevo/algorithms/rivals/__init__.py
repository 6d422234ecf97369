"""Published methods that DRC is compared with, and what only they use."""
