"""Hides secrets in every text that leaves: messages, shared pages, explanations, JSON, errors.

Pure: no I/O.

The logs of a job stay as they are. Hiding too much does little harm here; hiding too little cannot
be undone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hpcrun.job.text.recognise_secrets import MASK, SWITCH, forms_in, is_secret, is_secret_option
from hpcrun.job.text.unseen import UNSEEN

# The patterns below that are texts are compiled when a text is first searched: few commands do.
#
# NAME=VALUE, "name": "value", os.environ["NAME"] = 'value', --name value, and '--name', 'value' in
# a list
_NAMED_VALUE = (
    r"(?<![\w$.-])(?P<front>(?P<dash>--?)?(?P<name>[A-Za-z_][\w.-]{0,60})(?:['\"]?\]|['\"])?"
    r"(?:[ \t]{0,3}[:=][ \t]{0,3}|(?(dash)(?:[ \t]{1,9}|,[ ]?)|(?!))))"
    r"(?P<value>'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|(){}\[\]'\",]+)"
)
_LOOSE = frozenset({"key", "keys", "token", "tokens", "cookie", "cookies", "auth", "pass"})
"""Names that mean something else in most programs: ``sorted(key="loss")``."""
_FILLED_IN = ("$", "{", "<", MASK)
_LEAST_OF_VALUE = 8
_LEAST_OF_DECLARED = 4
_LEAST_OF_PART = 6
_LEAST_OF_FORM = 16
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_FIELD = re.compile(r"[a-z]+(?:_[a-z0-9]+)*")
# Where a terminal, a box around a text, or Python's pprint breaks a line, also inside a word.
_BREAK = "[ \\t'\"|]*[\\r\\n\u2500-\u257f][\\s'\"|\u2500-\u257f]*"
_IN_BREAKS = re.compile("[\\s'\"|\u2500-\u257f]+")
_RANDOM = r"(?=.*\d)(?=.*[A-Za-z])[^/~].{11,}"
_PART_OF_URL = r"(?=\w*\d|\w*[a-z]\w*[A-Z]|\w*[A-Z]\w*[a-z])[\w-]{8,}"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Known:
    """The value of a secret variable in one form."""

    value: str
    unbroken: str  # without what may stand where a line is broken
    name: str  # of the variable


class SecretHider:
    """Replaces secrets in texts by ``***``, and counts them.

    It knows them by their form, by the name before them, and by the values of those variables in
    ``env`` that are secrets, or are declared as secret in ``named``.
    """

    def __init__(self, env: Mapping[str, str] = _NONE, named: Collection[str] = ()) -> None:
        self._env = dict(env)
        self._named = set(named)
        self._hidden: set[str] = set()
        self._known: list[_Known] | None = None

    def learn(self, env: Mapping[str, str] = _NONE, named: Collection[str] = ()) -> None:
        """Add variables, and names of secret ones; other threads may hide texts meanwhile."""
        if env or not self._named.issuperset(named):
            self._env = {**self._env, **env}
            self._named = {*self._named, *named}
            self._known = None

    @property
    def count(self) -> int:
        """How many different secrets were hidden so far."""
        return len(self._hidden)

    def hide(self, text: str) -> str:
        """Return a text without its secrets; with a secret, also without invisible characters."""
        # most strings of JSON
        if len(text) < _LEAST_OF_FORM and text.isascii() and text.isidentifier():
            return self._without_values(text)
        if "\b" in text:
            text = "\n".join(map(self._overwritten, text.split("\n")))
        plain = UNSEEN.sub("", text)
        hidden = self._without_values(plain)
        for form in forms_in(hidden):
            hidden = re.sub(form.pattern, self._masked, hidden)
        hidden = re.sub(_NAMED_VALUE, self._masked_value, hidden)
        return text if hidden == plain else hidden

    def hide_all(self, value: Any) -> Any:
        """Return a JSON document without the secrets in its texts.

        A value for which JSON has no form becomes text. A declared value may be the same word as
        the name of a field, which stays.
        """
        if isinstance(value, Mapping):
            return {self._field(str(key)): self.hide_all(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_all(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.hide(str(value))

    def _field(self, key: str) -> str:
        return key if _FIELD.fullmatch(key) else self.hide(key)

    def _overwritten(self, line: str) -> str:
        """Return a line without a secret that a terminal shows after the line's backspaces.

        If there is no such secret, the line stays as it is; otherwise the result is the text that a
        terminal shows, without the secret.
        """
        if "\b" not in line:
            return line
        kept: list[str] = []
        for char in UNSEEN.sub(lambda match: match[0] if match[0] == "\b" else "", line):
            if char != "\b":
                kept.append(char)
            elif kept:
                kept.pop()
        shown = "".join(kept)
        hidden = self.hide(shown)
        return line if hidden == shown else hidden

    def _without_values(self, text: str) -> str:
        flat = _IN_BREAKS.sub("", text)  # to search for a pattern takes far longer than for a word
        for known in self._all_known():
            value = known.value
            if known.unbroken in flat:
                text = re.sub(_pattern(value), self._masked, text)
            # shortened before, in the middle of it
            if "…" in text and value[:_LEAST_OF_PART] in text:
                for most in range(len(value) - 1, _LEAST_OF_PART - 1, -1):
                    text = text.replace(f"{value[:most]}…", f"{MASK}…")
        return text

    def variable_in(self, text: str) -> str | None:
        """Return the name of a secret variable whose value is in a text, in any form.

        The result is None if the text contains no such value.
        """
        flat = _IN_BREAKS.sub("", text)
        for known in self._all_known():
            if known.unbroken in flat and re.search(_pattern(known.value), text):
                return known.name
        return None

    def _all_known(self) -> list[_Known]:
        """Return the values of the secret variables in all forms, the longest first."""
        known = self._known
        if known is None:
            names = {value: name for name in self._env for value in self._values(name)}
            known = []
            for value in sorted(names, key=len, reverse=True):
                known.append(_Known(value, _IN_BREAKS.sub("", value), names[value]))
            self._known = known
        return known

    def _values(self, name: str) -> Iterable[str]:
        """Return all forms in which a program may print the value of a secret variable.

        The result is empty for a variable that is not a secret.
        """
        value = self._env[name]
        declared = name in self._named and not SWITCH.fullmatch(value)
        is_known = declared or (len(value) >= _LEAST_OF_VALUE and is_secret(name, value))
        return _forms_of(value, declared=declared) if is_known else ()

    def _masked(self, match: re.Match[str]) -> str:
        if match["secret"].strip("'\"") == MASK:
            return match[0]
        self._hidden.add(match["secret"])
        behind = match.string[match.end("secret") : match.end()]
        return match["front"] + MASK + behind

    def _masked_value(self, match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        is_call = match.string[match.end() : match.end() + 1] in ("(", "[", ".")
        if not value or is_call or value.startswith(_FILLED_IN):
            return match[0]
        if not _is_secret_here(match):
            return match[0]
        self._hidden.add(value)
        return match["front"] + match["value"].replace(value, MASK)


HIDER = SecretHider()
"""The hider of this process: ``cli`` gives it the environment, and each record of a run the names
that it declares.
"""


def _forms_of(value: str, *, declared: bool) -> Iterator[str]:
    """Yield a value as programs print it, its lines, and the parts of a destination."""
    least = _LEAST_OF_DECLARED if declared else _LEAST_OF_VALUE
    yield from _of_length(_encodings(value), least)
    yield from _of_length(_in_base64(value), _LEAST_OF_VALUE)
    yield from _of_length(value.splitlines(), 2 * _LEAST_OF_VALUE)
    if declared and "://" in value:  # apprise calls another address with the same words
        for part in re.split(r"[/:?&=@#]+", value):
            if re.fullmatch(_PART_OF_URL, part):
                yield part


def _of_length(forms: Iterable[str], least: int) -> Iterator[str]:
    for form in forms:
        plain = form.strip()
        if len(plain) >= least:
            yield plain


def _encodings(value: str) -> Iterator[str]:
    """Yield a value in each encoding.

    The encodings are: as it is, in Python's and JSON's forms, quoted for a URL, and for HTML.
    """
    import html
    import json
    from urllib.parse import quote, quote_plus

    raw = value.encode("utf-8", "surrogateescape")
    yield from (value, value.encode("unicode_escape").decode(), repr(value)[1:-1], repr(raw)[2:-1])
    in_ascii = json.dumps(value)[1:-1]
    in_json = json.dumps(value, ensure_ascii=False)[1:-1]
    yield from (in_ascii, in_json)
    for text in (in_ascii, in_json):  # also JSON in JSON
        yield json.dumps(text, ensure_ascii=False)[1:-1]
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield from (quoted, re.sub("%..", lambda match: match[0].lower(), quoted))
    yield from (html.escape(value), html.escape(value, quote=False))


def _in_base64(value: str) -> Iterator[str]:
    """Yield the base64 characters that a value alone determines.

    Any other bytes, such as ``user:``, may stand before the value.
    """
    import base64

    raw = value.encode("utf-8", "surrogateescape")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode()
        digits = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield from (digits, digits.replace("+", "-").replace("/", "_"))


def _pattern(value: str) -> str:
    """Return the regular expression that finds a value.

    Any white space may stand between the words of the value. A short value is found only as a whole
    word.
    """
    if len(value) < _LEAST_OF_VALUE:
        words = r"\s+".join(map(re.escape, value.split()))
        return rf"(?P<front>)(?<!\w)(?P<secret>{words})(?!\w)"
    within_word = f"(?:{_BREAK})?"
    between_words = rf"(?:{_BREAK}|\s+)"
    parts = [within_word.join(map(re.escape, part)) for part in value.split()]
    return f"(?P<front>)(?P<secret>{between_words.join(parts)})"


def _is_secret_here(match: re.Match[str]) -> bool:
    """Return whether the value behind an option or a name is a secret."""
    last = match["name"].rpartition(".")[2]
    value = match["value"].strip("'\"")
    if value == last:  # of a function's call: api_key=api_key
        return False
    if is_secret_option(last, value):
        # hpcrun's own --secret takes a name
        return not (last == "secret" and _VARIABLE.fullmatch(value))
    is_random = bool(re.fullmatch(_RANDOM, value))
    is_value = last.isupper() or value != match["value"]
    is_likely = is_random or is_value
    if last.lower() in _LOOSE:
        is_likely = is_random and is_value
    if match["dash"] or not is_likely:
        # token_embedding = nn.Embedding: in a program, a word without quotes is a name
        return False
    return is_secret(last, value)
