"""The display of results: text for users, JSON for programs. Pure: nothing here prints or asks."""
