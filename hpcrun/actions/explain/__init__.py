"""Why a run failed, in words."""
