"""Why a run failed: rules as data, a matcher over its logs, and the choice of the cause among its
consequences.
"""
