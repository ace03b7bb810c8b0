"""Why a run failed, or hangs: its logs, its records, its ranks."""
