"""Recognises secrets: variables by their names, and values by their form. Pure: no I/O, and no guess by entropy.

No script, record or output contains a secret's value: it goes only through the environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from hpcrun.job.secret_forms import MASK, forms_in

# Words of a name, separated by "_", "-" or ".", without a number at the end: a variable with such a word is a secret.
# PGPASSWORD: libpq.
_ALWAYS = re.compile(r"CREDS|PASSCODE|PSK|.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL).*")
# KEY and KEYS alone are common words: DICT_KEYS, HOTKEY. Words before them, joined or separate:
_KINDS_OF_KEY = "ACCESS ACCOUNT API AUTH DEPLOY ENCRYPTION MASTER PRIVATE SECRET SIGNING SSH".split()
# These words have other meanings, too: SORT_KEY=true, TOKENS=512. GHTOKEN, REFRESHTOKEN; not MAXTOKENS.
_OFTEN = re.compile(
    r"KEY|TOKEN|JWT|BEARER|COOKIES?|HMAC|(?!(?:MAX|MIN|N|NUM|TOTAL)?TOKENS?$).*TOKEN.*"
    rf"|.*(?:{'|'.join(_KINDS_OF_KEY)})KEYS?|MYKEYS?"
)
_PAIRS = frozenset((kind, "KEYS") for kind in _KINDS_OF_KEY)
# Words that contain one of those words, but mean something else.
_INNOCENT = re.compile(r".*TOKENI[SZ].*|(?:PASSWORD|TOKEN|SECRET)LESS|SECRETAR.*")
# Words that may follow any name; numbers, too.
_QUALIFIERS = re.compile(r"\d+|V\d+|BACKUP|NEW|OLD")
# Only at the end of a name: PASS_THROUGH and SSH_AUTH_SOCK hold no secret. AUTH: OPENAI_AUTH, REDISCLI_AUTH
# (redis-cli). PASS: DB_PASS, SMTP_PASS. PAT: GITHUB_PAT, AZURE_DEVOPS_EXT_PAT (az). PWD: MYSQL_PWD (mysql(1)).
_LAST = frozenset({"AUTH", "PASS", "PAT", "PWD"})
# SSHPASS: sshpass(1). BW_SESSION: the command line of Bitwarden. The others: scripts around libpq, LDAP and databases.
_WHOLE = frozenset({"SSHPASS", "BW_SESSION", "PGPASS", "LDAPPASS", "DBPASS"})
# A description of a secret is not a secret: DB_PASSWORD_FILE, TOKEN_TYPE, KEY_SIZE. A URL is judged by its own form.
_DESCRIPTIONS = frozenset(
    """
    ALGORITHM COUNT DIM DIR DIRECTORY DOMAIN ENDPOINT EXPIRY FILE FILENAME FOLDER FORMAT HOME HOST JAR LEN LENGTH LIMIT
    NAME NAMES PATH POLICY PREFIX SIZE SUFFIX TIMEOUT TTL TYPE URI URL
    """.split()
)
_COUNTS = frozenset("MAX MIN N NUM NUMBER TOTAL AVG MEAN LAST FIRST MASK PAD BOS EOS UNK SEP CLS".split())
# The value may be the path of a file: GOOGLE_APPLICATION_CREDENTIALS.
_MAY_BE_FILES = ("CREDENTIAL", "CREDENTIALS", "SECRETS")
# Before KEY, PASS and the like these make a name that holds no secret: METRIC_KEY, FORWARD_PASS, GLOB_PAT.
_ORDINARY = frozenset("BACKWARD DATA FEATURE FORWARD GLOB GROUP IMAGE INPUT LABEL METRIC PUBLIC SORT TARGET".split())
_SHELL_S_OWN = frozenset({"PWD", "OLDPWD"})
_WORD = re.compile(r"[_.\-]+")
# A number, a switch, or a tokenizer's special token need not be hidden.
_HARMLESS = re.compile(r"[+-]?\d{1,12}(\.\d{0,12})?|true|false|yes|no|on|off|none|null|<[^<>]*>|\[[A-Za-z_]*\]", re.I)
SWITCH = re.compile(r"true|false|yes|no|on|off|none|null", re.I)
_FEW = re.compile(r"\d{1,3}")

_SHELL_VALUE = r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s;&|()'\"]+)"
_ASSIGNMENTS = (
    re.compile(rf"(?<![\w$.-])(?P<front>(?:(?:export|declare\s+-x)\s+)?)(?P<name>[A-Za-z_]\w*)={_SHELL_VALUE}"),
    re.compile(rf"(?<![\w$.-])(?P<front>setenv\s+)(?P<name>[A-Za-z_]\w*)\s+{_SHELL_VALUE}"),
)
# Each program has its own options: use only words that mean a secret in every program.
_STRONG = re.compile(
    r"(?:.*[-_])?(?:(?:api|access|private|secret|wandb)[-_]?keys?|(?:access|api|auth|bearer|bot|hf|refresh)[-_]?token"
    r"|creds|(?:db|database|smtp|mail|ftp|mysql|mariadb|pg|postgres|redis|mongo|ldap|admin|root|login|sudo|proxy)"
    r"[-_]?(?:pass|pwd))|.*(?:password|passwd|passphrase|secret)",
    re.IGNORECASE,
)
_LEAST_OF_OPTION = 6
# What shlex splits at; str.split() would split at more characters, and shlex would return such a word as it was.
_SHELL_SPACES = frozenset(" \t\r\n")


def is_secret(name: str, value: str | None = None, named: Collection[str] = ()) -> bool:
    """Return whether a variable is a secret: declared as one, by its name, or by the form of its value.

    Args:
        value: None if only the name is known.
        named: names of variables that a user or a profile declares as secret.
    """
    if value == "":
        return False
    if name in named or (value is not None and secret_kind(value) is not None):
        return True
    return _name_suggests(name, value)


def _name_suggests(name: str, value: str | None) -> bool:
    words = _words(name)
    if not words or "_".join(words) in _SHELL_S_OWN or words[-1] in _DESCRIPTIONS:
        return False
    last, known = words[-1], value or ""
    if "_".join(words) in _WHOLE or _any_is(_ALWAYS, words):
        is_path = last.endswith(_MAY_BE_FILES) and known.startswith("/")
        return not (SWITCH.fullmatch(known) or is_path)
    if words[-2:-1] and words[-2] in _ORDINARY:
        return False
    if last in _LAST:
        return not (SWITCH.fullmatch(known) or _FEW.fullmatch(known) or (last == "PWD" and known.startswith("/")))
    is_count = "PER" in words or (last.startswith("TOKEN") and not _COUNTS.isdisjoint(words[:-1]))
    if is_count or _HARMLESS.fullmatch(known):
        return False
    is_pair = not _PAIRS.isdisjoint(pairwise(words))
    return last == "TOKENS" or is_pair or _any_is(_OFTEN, words)


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name without trailing numbers, and without the words that may follow any name."""
    words = [word for word in _WORD.split(name.upper()) if word]
    while len(words) > 1 and _QUALIFIERS.fullmatch(words[-1]):
        words.pop()
    return tuple(word.rstrip("0123456789") for word in words)


def _any_is(pattern: re.Pattern[str], words: Sequence[str]) -> bool:
    return any(pattern.fullmatch(word) and not _INNOCENT.fullmatch(word) for word in words)


def secret_kind(text: str) -> str | None:
    """Return the kind of secret in a text by its form, such as ``a GitHub token``; None if there is none."""
    return next((form.kind for form in forms_in(text) if re.search(form.pattern, text)), None)


def secret_in_command(command: str) -> str | None:
    """Return the kind of secret in a shell command, None if there is none.

    It checks ``export NAME=VALUE``, ``NAME=VALUE program``, and the words of the command, also of ``bash -c '...'``; a
    value that the shell fills in is not a secret.
    """
    for match in (match for pattern in _ASSIGNMENTS for match in pattern.finditer(command)):
        name, value = match["name"], match["value"]
        filled_in = not value.startswith("'") and ("$" in value or "`" in value)
        is_variable = match["front"] or name.isupper()  # awk -v key=2 sets no variable of the shell
        if is_variable and not filled_in and is_secret(name, value.strip("'\"")):
            return f"the value of {name}"
    try:
        words = shlex.split(command)
    except ValueError:  # it has a quote alone
        words = [word.strip("'\"") for word in command.split()]
    return secret_kind(command) or next(secret_arguments(words), None)


def secret_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the kinds of secrets in the words of a command, without their values."""
    if kind := secret_kind(" ".join(arguments)):
        yield kind
    for number, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if not equals and word.startswith("-") and number + 1 < len(arguments):
            value = arguments[number + 1]
        if is_secret_option(option, value) and not secret_kind(value):
            yield f"the value of {option}"
        elif not _SHELL_SPACES.isdisjoint(word) and (kind := secret_in_command(word)):
            yield kind


def is_secret_option(option: str, value: str) -> bool:
    """Return whether an option of a program takes a secret, and this value can be a secret."""
    last = option.lstrip("-+").rpartition(".")[2]
    if not _STRONG.fullmatch(last) and last.lower() != "token":
        return False
    filled_in = value.startswith(("$", "{", "`", "<", "-", "/", "./", "~")) or value == MASK
    long_enough = len(value) >= _LEAST_OF_OPTION and not _HARMLESS.fullmatch(value)
    return long_enough and not filled_in and (last.lower() != "token" or any(char.isdigit() for char in value))
