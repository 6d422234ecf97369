"""Published methods that DRC is compared with, and the modules that only they use."""
