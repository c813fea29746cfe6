"""Where an epoch stands: counted, saved, checked, loaded, and merged from those of several ranks."""
