"""Recognises secrets: values by their form, variables and options by their names.

Pure, no guess by entropy.

No script, record or output contains a secret's value: it goes only through the environment. The
prefixes of tokens are GitHub's, GitLab's, Hugging Face's, Slack's and npm's by the services' own
pages on their tokens, AWS's by IAM's page on identifiers, the others by the rules of gitleaks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hpcrun.job.text.units import table_rows

MASK = "***"


class Form(NamedTuple):
    """A form of secrets."""

    kind: str  # what it is, such as ``a GitHub token``
    # small letters; a text with none of these has no such secret. Searching for them costs next to
    # nothing
    needs: tuple[str, ...]
    # its groups are ``front``, which stays, and ``secret``; compiled when a text first needs it
    pattern: str


# kind | prefixes | what follows one of them
_TOKENS = r"""
a GitHub token | ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ | \w{16,}
a GitLab token | glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- | [\w.-]{16,}
a Hugging Face token | hf_ api_org_ | [A-Za-z0-9]{16,}
an API key | sk-proj- sk-svcacct- sk-admin- sk-None- sk-or- sk-lf- sk-ant- | [\w-]{16,}
an API key | pplx- nvapi- PMAK- GOCSPX- lin_api_ | [\w-]{16,}
an API key | sk- sk_live_ sk_test_ rk_live_ rk_test_ gsk_ r8_ ntn_ | [A-Za-z0-9]{20,}
an API key | AIza | [\w-]{35}
an API key | SG. | [\w-]{16,}\.[\w-]{16,}
an API key | eyJhcGlf | [\w+/=-]{20,}
a Google token | ya29. 1//0 | [\w.-]{20,}
a Slack token | xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- | [A-Za-z0-9-]{10,}
a Slack token | xoxe.xoxb- xoxe.xoxp- | [A-Za-z0-9-]{10,}
an AWS access key | AKIA ASIA | [A-Z0-9]{16}(?![A-Za-z0-9])
an npm or PyPI token | npm_ pypi-AgE | [\w-]{16,}
a Weights & Biases key | wandb_v1_ wandb_v2_ wandb_v3_ | \w{24,}
a web token (JWT) | eyJ | [\w-]{6,}\.[\w-]{6,}\.[\w-]*
a Docker token | dckr_pat_ dckr_oat_ | [\w-]{16,}
a Shopify token | shpat_ shpca_ shppa_ shpss_ | [A-Za-z0-9]{16,}
a DigitalOcean token | dop_v1_ doo_v1_ dor_v1_ | [a-f0-9]{16,}
a Vault token | hvs. hvb. hvr. | [\w-]{20,}
a token | dapi | [a-f0-9]{32}
a token | glsa_ glc_ sntrys_ sntryu_ pscale_tkn_ pscale_pw_ ATATT3 pul- dp.pt. | [\w+/=-]{24,}
an age key | AGE-SECRET-KEY-1 | [A-Z0-9]{16,}
"""
# The schemes of apprise's services whose URLs hold a token between the slashes, also with an s at
# the end.
SERVICES = frozenset(
    """
    bark brevo chanify clickatell dingtalk discord evolution feishu flock fluxer gchat gotify
    groupme guilded hassio ifttt lark line mailgun matrix mmost msteams nctalk notifiarr notifico
    o365 onesignal opsgenie pagerduty pbul pjet pover prowl pushdeer pushed pushy reddit revolt
    rocket ryver schan sendgrid signl4 simplepush sinch slack sns sparkpost spike spush synology
    tgram threema toot trigv twilio twist viber victorops voipms vonage webex wecombot whapi
    whatsapp wxteams workflow zcliq zulip
    """.split()
)
# what the shell or hpcrun fills in is the name of a secret, or hidden already
_HIDDEN = r"(?!\$|\{|\*\*\*)"
# the words of a command, or of the same command as a list in Python
_BETWEEN = r"(?:\s{1,9}|['\"],\s?['\"])"
_PASSWORD_OPTION = rf"(?:-p|--password)(?:=|{_BETWEEN})"
_USER_OPTION = rf"(?:-u|--user|--proxy-user)(?:=|{_BETWEEN})?"
_SECRET_WORD = rf"(?P<secret>{_HIDDEN}(?:'[^'\n]+'|\"[^$\"\n][^\"\n]*\"|[^\s'\",;|&()$]+))"
# A command's option with a secret. kind | programs | options, the secret behind them
_COMMANDS = rf"""
a user and password for curl | curl wget | {_USER_OPTION}['\"]?[^\s:'\"]{{1,99}}:
a password for a database | mysql mysqldump mysqladmin mariadb mariadb-dump | -p
a password for ssh | sshpass | -p(?:{_BETWEEN})?
a password for Redis | redis-cli | (?:-a|--pass)(?:=|{_BETWEEN})?
a password for a registry | docker podman apptainer | login\b[^\n|;]{{0,99}}?{_PASSWORD_OPTION}
a password for LDAP | ldapsearch ldapmodify ldapadd | -w(?:{_BETWEEN})?
"""
_SCHEME = r"(?P<front>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}://"
_URL_END = rf"(?P<secret>{_HIDDEN}[^\s/?#'\"]+)@(?!sha\d+:)"
# A user name alone, as these services' own addresses of repositories have it, is not a token.
_USER = r"(?!git@|[\w.-]{1,50}@(?:dev\.azure\.com|bitbucket\.org)(?![\w.-]))"
_AUTH = r"(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)"
_SECRET_KEY = (
    r"password|passwd|passphrase|secret|(?:api|access|private|secret|signing|encryption)[_-]?key"
)
_KEY = r"(?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
# Also behind the sign of a diff, or the rank before a line of a log; and the headers of an
# encrypted key (RFC 1421).
_KEY_LINE = (
    r"[^A-Za-z0-9+/=\n]{0,12}(?:[A-Za-z0-9+/=]*|(?:Proc-Type|DEK-Info): "
    r"[^\n]*)[^A-Za-z0-9+/=\n]{0,8}(?=\n|\Z)"
)
# kind, needs, pattern. A user name and a password, or a token, stand before the "@" of a URL;
# docker://x:tag@sha256: names an image. Without a scheme: behind "//" any host, otherwise an IPv4
# address, or a host with a port, or with a dot and a path. A header without a scheme may be a
# sentence, and a token of JSON a tokenizer's: only with a digit.
_AROUND = (
    (
        "a private key",
        "-----begin",
        rf"(?P<front>)(?P<secret>-----BEGIN {_KEY}"
        rf"(?:(?:(?!-----BEGIN)(?s:.))*?-----END {_KEY}|[^\n]*(?:\n{_KEY_LINE})*))",
    ),
    (
        "the end of a private key",
        "-----end",
        rf"(?m:^)(?P<front>)(?P<secret>(?:{_KEY_LINE}\n){{0,200}}[^A-Za-z0-9\n]{{0,12}}-----END "
        rf"{_KEY})",
    ),
    ("a URL with a password", "://", rf"{_SCHEME}[^\s/?#@:'\"]*:){_URL_END}"),
    (
        "a URL with a token",
        "://",
        rf"(?i)(?<![A-Z0-9+.-])(?P<front>(?:git\+)?https?://)"
        rf"(?P<secret>{_HIDDEN}{_USER}[^\s/?#:'\"]+)@",
    ),
    (
        "a URL with a signature or key",
        "=",
        r"(?i)(?P<front>[?&;](?:sig|token|access_token|auth_token|api_?key|password|secret"
        r"|X-Amz-Signature|"
        rf"X-Goog-Signature)=)(?P<secret>{_HIDDEN}[^\s&;'\"]{{6,}})",
    ),
    (
        "a connection string with a password",
        "=",
        r"(?i)(?P<front>(?:^|[\s;=])(?:password|pwd|AccountKey|SharedAccessKey"
        r"|SharedAccessSignature)=)"
        rf"(?P<secret>{_HIDDEN}[^\s;'\"]+)",
    ),
    ("a URL with a password", "//", rf"(?<![^\s'\"=,;(])(?P<front>//[^\s/?#@:'\"]*:){_URL_END}"),
    (
        "a URL with a password",
        "@",
        rf"(?<![^\s'\"=,;(])(?P<front>[A-Za-z_][\w.+-]*:)(?P<secret>{_HIDDEN}"
        rf"(?![\d.]{{1,5}}@)[^\s/?#:'\"]{{1,999}})@(?!sha\d+:)"
        r"(?=[\w.-]+:\d{2,5}\b|\d{1,3}(?:\.\d{1,3}){3}\b|(?:[\w-]+\.)+[A-Za-z]{2,}/)",
    ),
    (
        "a header with a token",
        "bearer basic private-token x-api-key x-auth-token",
        r"(?i)(?P<front>\b(?:(?:Bearer|Basic)(?=\s+\S*(?:\d|=|[a-z](?-i:[A-Z])))|PRIVATE-TOKEN:"
        r"|X-API-Key:|X-Auth-Token:)\s+)(?P<secret>[A-Z0-9._~+/=-]{12,})",
    ),
    (
        "a header with a token",
        "authorization",
        rf"(?i)(?P<front>\bAuthorization\\?['\"]?\s*:\s*\\?['\"]?(?:{_AUTH}\s+|(?=\S*\d)))"
        rf"(?P<secret>(?![${{]|\*\*\*|{_AUTH}\s)[^'\"\\\r\n]{{4,}})",
    ),
    (
        "a cookie",
        "cookie",
        r"(?i)(?P<front>\b(?:Set-)?Cookie\\?['\"]?\s*:\s*\\?['\"]?)(?P<secret>"
        r"(?=[\w.-]+=)[^'\"\\\r\n]{4,})",
    ),
    (
        "JSON with a secret",
        "\" '",
        rf"(?is)(?P<front>(?P<quote>\\?['\"])[\w.-]*(?:{_SECRET_KEY}|"
        r"token(?=\\?['\"]\s*:\s*\\?['\"](?![<\[])[^'\"\\]{0,64}\d))(?P=quote)\s*:\s*(?P=quote))"
        r"(?P<secret>(?!\*\*\*|[${])(?:\\.|(?!(?P=quote)).)+?)(?=(?P=quote)|$)",
    ),
    (
        "a webhook",
        "hooks.slack.com webhook api.telegram.org",
        r"(?P<front>)(?P<secret>https://(?:hooks\.slack\.com/(?:services|workflows"
        r"|triggers)/[\w/+-]{12,}|"
        r"(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/[\w/-]{12,}|"
        r"[\w-]+\.webhook\.office\.com/webhookb2/[\w@/-]{12,}|api\.telegram\.org/"
        r"(?:file/)?bot\d+:[\w/-]{12,}))",
    ),
    ("the token of a Telegram bot", ":aa", r"(?<!\w)(?P<front>)(?P<secret>\d{8,10}:AA[\w-]{32,})"),
    (
        "the URL of a message service",
        "://",
        rf"(?P<front>(?<![\w+.-])(?=[a-z0-9]{{2,16}}://)(?:{'|'.join(sorted(SERVICES))})s?://)"
        rf"(?P<secret>(?!\*\*\*)[^\s'\"<>${{]{{6,}}(?=[\s'\"<>]|\Z))",
    ),
    (
        "the password of a machine",
        "machine",  # netrc(5)
        r"(?P<front>\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9})"
        r"(?P<secret>\S+)",
    ),
    (
        "an API key",
        "login",
        r"(?P<front>\bwandb\s{1,9}login\s{1,9}(?:--\w{1,40}\s{1,9}){0,9})(?P<secret>\w{32,})",
    ),
    (
        "an API key",
        "key",  # W&B's older keys have no prefix
        r"(?i)(?P<front>\b(?:api|wandb)[ _-]?key\b\W{1,5})(?P<secret>[0-9a-f]{40})(?![0-9a-f])",
    ),
)


def _forms() -> Iterator[Form]:
    """Yield the rows of all tables."""
    yield from (Form(kind, tuple(needs.split()), pattern) for kind, needs, pattern in _AROUND)
    for kind, prefixes, rest in table_rows(_TOKENS):
        token = rf"(?<![A-Za-z0-9])(?P<front>)(?P<secret>(?:{_any(prefixes)}){rest})"
        yield Form(kind, tuple(prefixes.lower().split()), token)
    for kind, programs, options in table_rows(_COMMANDS):
        front = rf"\b(?:{_any(programs)})\b(?!-)['\"]?[^\n|;]{{0,300}}?[\s'\"]{options}"
        yield Form(kind, tuple(programs.split()), f"(?P<front>{front}){_SECRET_WORD}")


def _any(words: str) -> str:
    return "|".join(map(re.escape, words.split()))


_NEEDS = tuple((need, form) for form in _forms() for need in form.needs)


def forms_in(text: str) -> Iterable[Form]:
    """Return the forms of which a text may have a secret, in the order of the tables."""
    lower = text.lower()
    return dict.fromkeys(form for need, form in _NEEDS if need in lower)


# The long patterns are compiled when a text first needs them, as those of the forms: most commands
# look for no secret.

# Words of a name, separated by "_", "-" or ".", without a number at the end: a variable with such a
# word is a secret. PGPASSWORD: libpq.
_ALWAYS = r"CREDS|PASSCODE|PSK|.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL).*"
# KEY and KEYS alone are common words: DICT_KEYS, HOTKEY. Words before them, joined or separate:
_KINDS_OF_KEY = (
    "ACCESS ACCOUNT API AUTH DEPLOY ENCRYPTION MASTER PRIVATE SECRET SIGNING SSH".split()
)
# These words have other meanings, too: SORT_KEY=true, TOKENS=512. GHTOKEN, REFRESHTOKEN; not
# MAXTOKENS.
_OFTEN = (
    r"KEY|TOKEN|JWT|BEARER|COOKIES?|HMAC|(?!(?:MAX|MIN|N|NUM|TOTAL)?TOKENS?$).*TOKEN.*"
    rf"|.*(?:{'|'.join(_KINDS_OF_KEY)})KEYS?|MYKEYS?"
)
_PAIRS = frozenset((kind, "KEYS") for kind in _KINDS_OF_KEY)
# Words that contain one of those words, but mean something else.
_INNOCENT = r".*TOKENI[SZ].*|(?:PASSWORD|TOKEN|SECRET)LESS|SECRETAR.*"
# Words that may follow any name; numbers, too.
_QUALIFIERS = re.compile(r"\d+|V\d+|BACKUP|NEW|OLD")
# Only at the end of a name: PASS_THROUGH and SSH_AUTH_SOCK hold no secret. AUTH: OPENAI_AUTH,
# REDISCLI_AUTH (redis-cli). PASS: DB_PASS, SMTP_PASS. PAT: GITHUB_PAT, AZURE_DEVOPS_EXT_PAT (az).
# PWD: MYSQL_PWD (mysql(1)).
_LAST = frozenset({"AUTH", "PASS", "PAT", "PWD"})
# SSHPASS: sshpass(1). BW_SESSION: the command line of Bitwarden. The others: scripts around libpq,
# LDAP and databases.
_WHOLE = frozenset({"SSHPASS", "BW_SESSION", "PGPASS", "LDAPPASS", "DBPASS"})
# A description of a secret is not a secret: DB_PASSWORD_FILE, TOKEN_TYPE, KEY_SIZE. A URL is judged
# by its own form.
_DESCRIPTIONS = frozenset(
    """
    ALGORITHM COUNT DIM DIR DIRECTORY DOMAIN ENDPOINT EXPIRY FILE FILENAME FOLDER FORMAT HOME HOST
    JAR LEN LENGTH LIMIT NAME NAMES PATH POLICY PREFIX SIZE SUFFIX TIMEOUT TTL TYPE URI URL
    """.split()
)
_COUNTS = frozenset(
    "MAX MIN N NUM NUMBER TOTAL AVG MEAN LAST FIRST MASK PAD BOS EOS UNK SEP CLS".split()
)
# The value may be the path of a file: GOOGLE_APPLICATION_CREDENTIALS.
_MAY_BE_FILES = ("CREDENTIAL", "CREDENTIALS", "SECRETS")
# Before KEY, PASS and the like these make a name that holds no secret: METRIC_KEY, FORWARD_PASS,
# GLOB_PAT.
_ORDINARY = frozenset(
    "BACKWARD DATA FEATURE FORWARD GLOB GROUP IMAGE INPUT LABEL METRIC PUBLIC SORT TARGET".split()
)
_SHELL_S_OWN = frozenset({"PWD", "OLDPWD"})
_WORD = re.compile(r"[_.\-]+")
# A number, a switch, or a tokenizer's special token need not be hidden.
_HARMLESS = re.compile(
    r"[+-]?\d{1,12}(\.\d{0,12})?|true|false|yes|no|on|off|none|null|<[^<>]*>|\[[A-Za-z_]*\]", re.I
)
SWITCH = re.compile(r"true|false|yes|no|on|off|none|null", re.I)
_FEW = re.compile(r"\d{1,3}")

_SHELL_VALUE = r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s;&|()'\"]+)"
_ASSIGNMENTS = (
    rf"(?<![\w$.-])(?P<front>(?:(?:export|declare\s+-x)\s+)?)(?P<name>[A-Za-z_]\w*)={_SHELL_VALUE}",
    rf"(?<![\w$.-])(?P<front>setenv\s+)(?P<name>[A-Za-z_]\w*)\s+{_SHELL_VALUE}",
)
# Each program has its own options: use only words that mean a secret in every program.
_STRONG = (
    r"(?i)"
    r"(?:.*[-_])?(?:(?:api|access|private|secret|wandb)[-_]?keys?|(?:access|api|auth|bearer|bot|hf"
    r"|refresh)[-_]?token"
    r"|creds|(?:db|database|smtp|mail|ftp|mysql|mariadb|pg|postgres|redis|mongo|ldap|admin|root"
    r"|login|sudo|proxy)"
    r"[-_]?(?:pass|pwd))|.*(?:password|passwd|passphrase|secret)"
)
_LEAST_OF_OPTION = 6
# What shlex splits at; str.split() would split at more characters, and shlex would return such a
# word as it was.
_SHELL_SPACES = frozenset(" \t\r\n")


def is_secret(name: str, value: str | None = None, named: Collection[str] = ()) -> bool:
    """Return whether a variable is a secret.

    A variable is a secret if it is declared in ``named``, by its name, or by the form of its value.
    """
    if value == "":
        return False
    if name in named or (value is not None and secret_kind(value) is not None):
        return True
    words = _words(name)
    if not words or "_".join(words) in _SHELL_S_OWN or words[-1] in _DESCRIPTIONS:
        return False
    return _is_named_as_secret(words, value or "")


def _is_count(words: Sequence[str]) -> bool:
    """Return whether the words of a name are those of a number, such as MAX_TOKENS."""
    if "PER" in words:
        return True
    return words[-1].startswith("TOKEN") and not _COUNTS.isdisjoint(words[:-1])


def _is_named_as_secret(words: Sequence[str], known: str) -> bool:
    """Return whether the words of a name are those of a secret, whose value may be known."""
    last = words[-1]
    if "_".join(words) in _WHOLE or _any_is(_ALWAYS, words):
        is_path = last.endswith(_MAY_BE_FILES) and known.startswith("/")
        return not (SWITCH.fullmatch(known) or is_path)
    if words[-2:-1] and words[-2] in _ORDINARY:
        return False
    if last in _LAST:
        is_folder = last == "PWD" and known.startswith("/")
        return not (SWITCH.fullmatch(known) or _FEW.fullmatch(known) or is_folder)
    if _is_count(words) or _HARMLESS.fullmatch(known):
        return False
    is_pair = not _PAIRS.isdisjoint(pairwise(words))
    return last == "TOKENS" or is_pair or _any_is(_OFTEN, words)


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name without trailing numbers.

    The words that may follow any name are left out, too.
    """
    words = [part for part in _WORD.split(name.upper()) if part]
    while len(words) > 1 and _QUALIFIERS.fullmatch(words[-1]):
        words.pop()
    return tuple(part.rstrip("0123456789") for part in words)


def _any_is(pattern: str, words: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, part) and not re.fullmatch(_INNOCENT, part) for part in words)


def secret_kind(text: str) -> str | None:
    """Return the kind of secret in a text by its form, such as ``a GitHub token``, or None.

    None means that the text contains no secret.
    """
    for form in forms_in(text):
        if re.search(form.pattern, text):
            return form.kind
    return None


def secret_in_command(command: str) -> str | None:
    """Return the kind of secret in a shell command, None if there is none.

    It checks ``export NAME=VALUE``, ``NAME=VALUE program``, and the words of the command, also of
    ``bash -c '...'``; a value that the shell fills in is not a secret.
    """
    assignments: list[re.Match[str]] = []
    for pattern in _ASSIGNMENTS:
        assignments += re.finditer(pattern, command)
    for match in assignments:
        name = match["name"]
        value = match["value"]
        filled_in = not value.startswith("'") and ("$" in value or "`" in value)
        is_variable = match["front"] or name.isupper()  # awk -v key=2 sets no variable of the shell
        if is_variable and not filled_in and is_secret(name, value.strip("'\"")):
            return f"the value of {name}"
    try:
        words = shlex.split(command)
    except ValueError:  # it has a quote alone
        words = [part.strip("'\"") for part in command.split()]
    return secret_kind(command) or next(secret_arguments(words), None)


def secret_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the kinds of secrets in the words of a command, without their values."""
    kind = secret_kind(" ".join(arguments))
    if kind:
        yield kind
    for number, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not equals and argument.startswith("-") and number + 1 < len(arguments):
            value = arguments[number + 1]
        if is_secret_option(option, value) and not secret_kind(value):
            yield f"the value of {option}"
        elif not _SHELL_SPACES.isdisjoint(argument):
            kind = secret_in_command(argument)
            if kind:
                yield kind


def is_secret_option(option: str, value: str) -> bool:
    """Return whether an option of a program takes a secret, and this value can be a secret."""
    last = option.lstrip("-+").rpartition(".")[2]
    if not re.fullmatch(_STRONG, last) and last.lower() != "token":
        return False
    if value == MASK or value.startswith(("$", "{", "`", "<", "-", "/", "./", "~")):
        return False
    if len(value) < _LEAST_OF_OPTION or _HARMLESS.fullmatch(value):
        return False
    return last.lower() != "token" or any(char.isdigit() for char in value)
