"""history: what jobs have used, how they ended, and how long they waited."""
