"""Tests of hpcrun."""

import sys

# jsonschema imports it, where it is installed, for formats that no test checks: it makes 38
# grammars as it is imported, which takes more than a second of each worker.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
