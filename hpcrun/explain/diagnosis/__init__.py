"""Why a run failed: the rules, the matcher and the choice of the cause.

The rules are data, the matcher looks for them in a run's logs, and the cause is chosen among its
consequences.
"""
