"""pydantic's errors in plain words: one table for options and for profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# pydantic's error types (https://docs.pydantic.dev/latest/errors/validation_errors), and the requirement in words.
_MUST_BE: dict[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a section of keys and values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list, such as [one, two]",
    "literal_error": "{expected}",
    "mapping_type": "a section of keys and values",
    "model_type": "a section of keys and values",
    "string_type": "text",
    "tuple_type": "a list, such as [one, two]",
}


def error_words(detail: Mapping[str, Any]) -> str:
    """Return the error of a value, such as ``must be a whole number``, without the value itself.

    Args:
        detail: one of pydantic's ``ValidationError.errors()``.
    """
    words = _MUST_BE.get(detail["type"])
    if words is None:
        return str(detail["msg"]).removeprefix("Value error, ")
    return f"must be {words.format_map(detail.get('ctx', {}))}"
