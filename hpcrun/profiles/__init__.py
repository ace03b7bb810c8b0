"""Where profiles, configuration and template sources come from: finding, reading, merging."""
