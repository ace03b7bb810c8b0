"""Recognises secrets: variables by their names, and values by their form. Pure: no I/O, and no guess by entropy.

No script, record or output contains a secret's value: it goes only through the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

MASK = "***"

# Words of a name, separated by "_", "-" or ".", without a number at the end: a variable with such a word is a secret.
_ALWAYS = frozenset("CREDS PASSCODE PSK".split())
# Anywhere in a word, as in PGPASSWORD (libpq).
_ALWAYS_WITHIN = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL")
# These words have other meanings, too: SORT_KEY=true, TOKENS=512.
_OFTEN = frozenset({"KEY", "TOKEN", "JWT", "BEARER", "COOKIE", "COOKIES", "HMAC"})
# KEY and KEYS alone are common words: DICT_KEYS, HOTKEY. Words before them, joined or separate:
_KINDS_OF_KEY = "ACCESS ACCOUNT API AUTH DEPLOY ENCRYPTION MASTER PRIVATE SECRET SIGNING SSH".split()
# GHTOKEN, REFRESHTOKEN; not MAXTOKENS.
_OFTEN_WITHIN = re.compile(
    rf"(?!(?:MAX|MIN|N|NUM|TOTAL)?TOKENS?$).*TOKEN.*|.*(?:{'|'.join(_KINDS_OF_KEY)})KEYS?|MYKEYS?"
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
_SHELL_S_OWN = frozenset({"PWD", "OLDPWD"})
_WORD = re.compile(r"[_.\-]+")
# A number, a switch, or a tokenizer's special token need not be hidden.
_HARMLESS = re.compile(r"[+-]?\d{1,12}(\.\d{0,12})?|true|false|yes|no|on|off|none|null|<[^<>]*>|\[[A-Za-z_]*\]", re.I)
_SWITCH = re.compile(r"true|false|yes|no|on|off|none|null", re.I)
_FEW = re.compile(r"\d{1,3}")

# A user name and a password, or a token, before the "@" of a URL. After "$" or in braces there is only the name of a
# secret. docker://image:tag@sha256:... names an image.
_URL_PASSWORD = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<front>[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/?#@:'\"]*:)"
    r"(?P<secret>(?!\$|\{|\*\*\*@)[^\s/?#'\"]+)@(?!sha\d+:)"
)
_URL_TOKEN = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<front>(?:git\+)?https?://)(?P<secret>(?!\$|\{|\*\*\*@)[^\s/?#:'\"]+)@", re.IGNORECASE
)
_QUERY = re.compile(
    r"(?P<front>[?&;](?:sig|token|access_token|auth_token|api_?key|password|secret|X-Amz-Signature|X-Goog-Signature)=)"
    r"(?P<secret>(?![${]|\*\*\*)[^\s&;'\"]{6,})",
    re.IGNORECASE,
)
_PARAMETER = re.compile(  # connection strings: libpq's "password=...", Azure's "AccountKey=..."
    r"(?P<front>(?:^|[\s;=])(?:password|pwd|AccountKey|SharedAccessKey|SharedAccessSignature)=)"
    r"(?P<secret>(?![${]|\*\*\*)[^\s;'\"]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<front>\b(?:Bearer|Basic|PRIVATE-TOKEN:|X-API-Key:|X-Auth-Token:)\s+)(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    re.IGNORECASE,
)
# Without a scheme it may be a sentence: match only with a digit. Match everything up to the end of the header.
_AUTHORIZATION = re.compile(
    r"(?P<front>\bAuthorization\\?['\"]?\s*:\s*\\?['\"]?(?:(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)\s+|(?=\S*\d)))"
    r"(?P<secret>(?![${]|\*\*\*|(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)\s)[^'\"\\\r\n]{4,})",
    re.IGNORECASE,
)
# JSON, Python's dictionaries, and JSON within a string. A token may belong to a tokenizer: match only with a digit.
_JSON = re.compile(
    r"(?P<front>(?P<quote>\\?['\"])"
    r"[\w.-]*(?:password|passwd|passphrase|secret|(?:api|access|private|secret|signing|encryption)[_-]?key|"
    r"token(?=\\?['\"]\s*:\s*\\?['\"](?![<\[])[^'\"\\]{0,64}\d))"
    r"(?P=quote)\s*:\s*(?P=quote))(?P<secret>(?!\*\*\*|[${])(?:\\.|(?!(?P=quote)).)+?)(?=(?P=quote)|$)",
    re.IGNORECASE | re.DOTALL,
)
# Without a scheme: after "//" any host, otherwise an IPv4 address, or a host with a port, or with a dot and a path.
_BARE_PASSWORD = re.compile(
    r"(?<![^\s'\"=,;(])(?P<front>//[^\s/?#@:'\"]*:)(?P<secret>(?!\$|\{|\*\*\*@)[^\s/?#'\"]{1,999})@(?!sha\d+:)"
)
_BARE_USER = re.compile(
    r"(?<![^\s'\"=,;(])(?P<front>[A-Za-z_][\w.+-]*:)(?P<secret>(?!\$|\{|\*\*\*@)[^\s/?#:'\"]{1,999})@"
    r"(?!sha\d+:)(?=[\w.-]+:\d{2,5}\b|\d{1,3}(?:\.\d{1,3}){3}\b|(?:[\w-]+\.)+[A-Za-z]{2,}/)"
)


def _prefixed(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?P<front>)(?P<secret>{pattern})")


# kind → its form. Most prefixes are meant to be recognised: GitHub's, GitLab's, Hugging Face's, Slack's and npm's by
# the services' own pages on their tokens, AWS's by IAM's page on identifiers, the others by the rules of gitleaks.
_VALUES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "a private key",
        re.compile(r"(?P<front>)(?P<secret>-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----.*)", re.DOTALL),
    ),
    ("a URL with a password", _URL_PASSWORD),
    ("a URL with a token", _URL_TOKEN),
    ("a URL with a signature or key", _QUERY),
    ("a connection string with a password", _PARAMETER),
    ("a URL with a password", _BARE_PASSWORD),
    ("a URL with a password", _BARE_USER),
    ("a header with a token", _HEADER),
    ("a header with a token", _AUTHORIZATION),
    ("JSON with a secret", _JSON),
    ("a GitHub token", _prefixed(r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}")),
    ("a GitLab token", _prefixed(r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{16,}")),
    ("a Hugging Face token", _prefixed(r"(?:hf|api_org)_[A-Za-z0-9]{16,}")),
    ("an API key", _prefixed(r"sk-(?:(?:proj|svcacct|admin|None|or|lf|ant)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})")),
    ("an API key", _prefixed(r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|AIza[A-Za-z0-9_-]{35}|gsk_[A-Za-z0-9]{32,}")),
    ("a Slack token", _prefixed(r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}")),
    ("a Slack webhook", _prefixed(r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{12,}")),
    ("an AWS access key", _prefixed(r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")),
    ("an npm or PyPI token", _prefixed(r"npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{16,}")),
    ("a Weights & Biases key", _prefixed(r"wandb_v\d_[A-Za-z0-9_]{24,}")),
    ("a web token (JWT)", _prefixed(r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*")),
)

_SHELL_VALUE = r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s;&|()'\"]+)"
_ASSIGNMENTS = (
    re.compile(rf"(?<![\w$.-])(?P<front>(?:(?:export|declare\s+-x)\s+)?)(?P<name>[A-Za-z_]\w*)={_SHELL_VALUE}"),
    re.compile(rf"(?<![\w$.-])(?P<front>setenv\s+)(?P<name>[A-Za-z_]\w*)\s+{_SHELL_VALUE}"),
)
_WANDB_LOGIN = re.compile(r"\bwandb\s+login\s+(?:--\w+\s+)*(?P<secret>[A-Za-z0-9_]{32,})")
# Each program has its own options: use only words that mean a secret in every program.
_OPTIONS = frozenset(
    """
    api-key apikey api-token access-key access-token auth-token hf-token password passwd passphrase private-key secret
    secret-key secret-access-key token wandb-key wandb-api-key
    """.split()
)
_LEAST_OF_OPTION = 6


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
    if "_".join(words) in _WHOLE or any(_is_always(word) for word in words):
        is_path = last.endswith(_MAY_BE_FILES) and known.startswith("/")
        return not (_SWITCH.fullmatch(known) or is_path)
    if last in _LAST:
        return not (_SWITCH.fullmatch(known) or _FEW.fullmatch(known) or (last == "PWD" and known.startswith("/")))
    is_count = "PER" in words or (last.startswith("TOKEN") and not _COUNTS.isdisjoint(words[:-1]))
    if is_count or _HARMLESS.fullmatch(known):
        return False
    is_pair = not _PAIRS.isdisjoint(pairwise(words))
    return last == "TOKENS" or is_pair or any(_is_often(word) for word in words)


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name without trailing numbers, and without the words that may follow any name."""
    words = [word for word in _WORD.split(name.upper()) if word]
    while len(words) > 1 and _QUALIFIERS.fullmatch(words[-1]):
        words.pop()
    return tuple(word.rstrip("0123456789") for word in words)


def _is_always(word: str) -> bool:
    return word in _ALWAYS or (any(part in word for part in _ALWAYS_WITHIN) and not _INNOCENT.fullmatch(word))


def _is_often(word: str) -> bool:
    return word in _OFTEN or bool(_OFTEN_WITHIN.fullmatch(word) and not _INNOCENT.fullmatch(word))


def secret_kind(text: str) -> str | None:
    """Return the kind of secret in a text by its form, such as ``a GitHub token``; None if there is none."""
    return next((kind for kind, pattern in _VALUES if pattern.search(text)), None)


def hide_secrets(text: str) -> str:
    """Return a text with every secret in it replaced by ``***``, for a message or a plan."""
    for _, pattern in _VALUES:
        text = pattern.sub(lambda match: match["front"] + MASK + match[0][match.end("secret") - match.start() :], text)
    return text


def secret_in_command(command: str) -> str | None:
    """Return the kind of secret in a shell command, None if there is none.

    It checks ``export NAME=VALUE`` and ``NAME=VALUE program``; a value that the shell fills in is not a secret.
    """
    for match in (match for pattern in _ASSIGNMENTS for match in pattern.finditer(command)):
        name, value = match["name"], match["value"]
        filled_in = not value.startswith("'") and ("$" in value or "`" in value)
        is_variable = match["front"] or name.isupper()  # awk -v key=2 sets no variable of the shell
        if is_variable and not filled_in and is_secret(name, value.strip("'\"")):
            return f"the value of {name}"
    if _WANDB_LOGIN.search(command):
        return "an API key"
    return secret_kind(command)


def secret_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the kinds of secrets in the arguments of a program, without their values."""
    for number, word in enumerate(arguments):
        if kind := secret_kind(word):
            yield kind
            continue
        option, equals, value = word.partition("=")
        if not equals and word.startswith("-") and number + 1 < len(arguments):
            value = arguments[number + 1]
        if is_secret_option(option, value) and not secret_kind(value):
            yield f"the value of {option}"


def is_secret_option(option: str, value: str) -> bool:
    """Return whether an option of a program takes a secret, and this value can be a secret."""
    words = option.lstrip("-+").replace("_", "-").lower()
    last = words.rpartition(".")[2]
    if last not in _OPTIONS and not last.endswith(("-password", "-api-key", "-auth-token", "-secret-key")):
        return False
    filled_in = value.startswith(("$", "{", "-", "/", "./", "~")) or value == MASK
    long_enough = len(value) >= _LEAST_OF_OPTION and not _HARMLESS.fullmatch(value)
    return long_enough and not filled_in and (last != "token" or any(char.isdigit() for char in value))


# What follows is for texts that other people will read: logs, scripts, diffs. There, hiding too much does no harm.
_KEY_EDGE = re.compile(r"-----(?P<edge>BEGIN|END) (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
# Also behind the sign of a diff, or the rank before a line of a log; and the headers of an encrypted key (RFC 1421).
_LINE_OF_KEY = re.compile(r"[^A-Za-z0-9+/=]{0,12}(?:[A-Za-z0-9+/=]*|(?:Proc-Type|DEK-Info): .*)[^A-Za-z0-9+/=]{0,8}")
_IN_TEXT = (
    # netrc(5); `wandb login`; W&B's older keys have no prefix
    re.compile(
        r"(?P<front>\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9})(?P<secret>\S+)"
    ),
    re.compile(r"(?P<front>\bwandb\s{1,9}login\s{1,9}(?:--\w{1,40}\s{1,9}){0,9})(?P<secret>[A-Za-z0-9_]{32,})"),
    re.compile(r"(?P<front>\b(?:api|wandb)[ _-]?key\b\W{1,5})(?P<secret>[0-9a-f]{40})(?![0-9a-f])", re.IGNORECASE),
)
_QUOTED_OR_WORD = r"(?P<value>'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|(){}\[\]'\",]+)"
_OPTION_VALUE = re.compile(
    rf"(?<![\w-])(?P<front>--?(?P<name>[A-Za-z][\w.-]{{0,60}})(?:=|[ \t]{{1,9}})){_QUOTED_OR_WORD}"
)
_NAMED_VALUE = re.compile(
    rf"(?<![\w$.-])(?P<front>(?P<name>[A-Za-z_][\w.-]{{0,60}})(?:['\"]?\])?[ \t]{{0,3}}[:=][ \t]{{0,3}})"
    rf"{_QUOTED_OR_WORD}"
)
_LOOSE = frozenset({"key", "keys", "token", "tokens", "cookie", "cookies", "auth", "pass"})
"""Names that mean something else in most programs: ``sorted(key="loss")``."""
_FILLED_IN = ("$", "{", "<", MASK)
_LEAST_OF_VALUE = 8
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class SecretHider:
    """Replaces the secrets in texts for other people by ``***``, and counts them.

    It knows secrets by their form, by the name before them, and the values of the caller's own secret variables.

    Args:
        env: the caller's environment.
        named: names of variables that are declared as secret.
    """

    def __init__(self, env: Mapping[str, str], named: Collection[str] = ()) -> None:
        known = {
            value for name, value in env.items() if len(value) >= _LEAST_OF_VALUE and is_secret(name, value, named)
        }
        words = "|".join(re.escape(value) for value in sorted(known, key=len, reverse=True))
        self._known = re.compile(f"(?P<front>)(?P<secret>{words})") if words else None
        self._found: set[str] = set()

    @property
    def count(self) -> int:
        """How many different secrets were found so far."""
        return len(self._found)

    def hide(self, text: str) -> str:
        """Return a text without its secrets."""
        if self._known:
            text = self._known.sub(self._masked, text)
        text = self._without_keys(text)
        for pattern in (*(pattern for _, pattern in _VALUES), *_IN_TEXT):
            text = pattern.sub(self._masked, text)
        text = _OPTION_VALUE.sub(self._masked_if(_option_is_secret), text)
        return _NAMED_VALUE.sub(self._masked_if(_names_secret), text)

    def _masked(self, match: re.Match[str]) -> str:
        if match["secret"] != MASK:
            self._found.add(match["secret"])
        return match["front"] + MASK + match[0][match.end("secret") - match.start() :]

    def _masked_if(self, test: Callable[[str, str], bool]) -> Callable[[re.Match[str]], str]:
        def masked(match: re.Match[str]) -> str:
            value = match["value"].strip("'\"")
            is_call = match.string[match.end() : match.end() + 1] in ("(", "[", ".")
            if not value or is_call or value.startswith(_FILLED_IN) or not test(match["name"], match["value"]):
                return match[0]
            self._found.add(value)
            quote = match["value"][0] if match["value"][0] in "'\"" else ""
            return f"{match['front']}{quote}{MASK}{quote}"

        return masked

    def _without_keys(self, text: str) -> str:
        """Return a text without private keys, also those whose beginning or end is missing."""
        parts, position, begins = list[str](), 0, -1
        for match in _KEY_EDGE.finditer(text):
            if match["edge"] == "BEGIN" and begins < 0:
                begins = match.start()
            elif match["edge"] == "END":
                if begins < 0:
                    begins = _start_of_key(text, position, match.start())
                self._found.add(text[begins : match.end()])
                parts += [text[position:begins], MASK]
                position, begins = match.end(), -1
        if begins >= 0:
            end = _end_of_key(text, begins)
            self._found.add(text[begins:end])
            parts += [text[position:begins], MASK]
            position = end
        return "".join([*parts, text[position:]])


def _start_of_key(text: str, position: int, end: int) -> int:
    """Return where a private key begins whose first line is missing: before all lines that look like a key's."""
    begins = end
    while begins > position:
        line = text.rfind("\n", position, begins - 1) + 1 or position
        if not _LINE_OF_KEY.fullmatch(text[line:begins].rstrip("\n")):
            break
        begins = line
    return begins


def _end_of_key(text: str, begins: int) -> int:
    """Return where a private key ends whose last line is missing: behind its lines, and all of its first line."""
    end = text.find("\n", begins)
    while 0 <= end < len(text):
        line_end = text.find("\n", end + 1)
        line = text[end + 1 : line_end if line_end >= 0 else len(text)]
        if not _LINE_OF_KEY.fullmatch(line):
            return end
        end = line_end
    return len(text)


def _option_is_secret(option: str, value: str) -> bool:
    # hpcrun's own --secret takes the name of a variable
    return is_secret_option(option, value.strip("'\"")) and not (option == "secret" and _VARIABLE.fullmatch(value))


def _names_secret(name: str, value: str) -> bool:
    """Return whether ``NAME=VALUE`` or ``name: value`` in a text is a secret; a value in quotes still has them."""
    last, text = name.rpartition(".")[2], value.strip("'\"")
    if is_secret_option(last, text):
        return True
    if last.lower() in _LOOSE and not (len(text) >= 12 and re.search(r"\d", text) and re.search(r"[A-Za-z]", text)):
        return False
    # token_embedding = nn.Embedding: in a program, a word without quotes is a name
    return (last.isupper() or text != value) and is_secret(last, text)
