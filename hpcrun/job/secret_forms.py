"""The forms of secrets, as tables: tokens by their prefixes, and the texts around other secrets. Pure.

Most prefixes are meant to be recognised: GitHub's, GitLab's, Hugging Face's, Slack's and npm's by the services' own
pages on their tokens, AWS's by IAM's page on identifiers, the others by the rules of gitleaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MASK = "***"


class Form(NamedTuple):
    """A form of secrets.

    Attributes:
        kind: what it is, such as ``a GitHub token``.
        needs: small letters; a text with none of these has no such secret. Searching for them costs next to nothing.
        pattern: its groups are ``front``, which stays, and ``secret``; compiled when a text first needs it.
    """

    kind: str
    needs: tuple[str, ...]
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
a Slack token | xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp- xapp- | [A-Za-z0-9-]{10,}
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
# The schemes of apprise's services whose URLs hold a token between the slashes, also with an s at the end.
SERVICES = frozenset(
    """
    bark brevo chanify clickatell dingtalk discord evolution feishu flock fluxer gchat gotify groupme guilded hassio
    ifttt lark line mailgun matrix mmost msteams nctalk notifiarr notifico o365 onesignal opsgenie pagerduty pbul pjet
    pover prowl pushdeer pushed pushy reddit revolt rocket ryver schan sendgrid signl4 simplepush sinch slack sns
    sparkpost spike spush synology tgram threema toot trigv twilio twist viber victorops voipms vonage webex wecombot
    whapi whatsapp wxteams workflow zcliq zulip
    """.split()
)
_HIDDEN = r"(?!\$|\{|\*\*\*)"  # what the shell or hpcrun fills in is the name of a secret, or hidden already
_BETWEEN = r"(?:\s{1,9}|['\"],\s?['\"])"  # the words of a command, or of its list in Python
_WORD = rf"(?P<secret>{_HIDDEN}(?:'[^'\n]+'|\"[^$\"\n][^\"\n]*\"|[^\s'\",;|&()$]+))"
# A command's option with a secret. kind | programs | options, the secret behind them
_COMMANDS = rf"""
a user and password for curl | curl wget | (?:-u|--user|--proxy-user)(?:=|{_BETWEEN})?['\"]?[^\s:'\"]{{1,99}}:
a password for a database | mysql mysqldump mysqladmin mariadb mariadb-dump | -p
a password for ssh | sshpass | -p(?:{_BETWEEN})?
a password for Redis | redis-cli | (?:-a|--pass)(?:=|{_BETWEEN})?
a password for a registry | docker podman apptainer | login\b[^\n|;]{{0,99}}?(?:-p|--password)(?:=|{_BETWEEN})
a password for LDAP | ldapsearch ldapmodify ldapadd | -w(?:{_BETWEEN})?
"""
_SCHEME = r"(?P<front>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}://"
_URL_END = rf"(?P<secret>{_HIDDEN}[^\s/?#'\"]+)@(?!sha\d+:)"
# A user name alone, as these services' own addresses of repositories have it, is not a token.
_USER = r"(?!git@|[\w.-]{1,50}@(?:dev\.azure\.com|bitbucket\.org)(?![\w.-]))"
_AUTH = r"(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)"
_SECRET_KEY = r"password|passwd|passphrase|secret|(?:api|access|private|secret|signing|encryption)[_-]?key"
_KEY = r"(?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
# Also behind the sign of a diff, or the rank before a line of a log; and the headers of an encrypted key (RFC 1421).
_KEY_LINE = r"[^A-Za-z0-9+/=\n]{0,12}(?:[A-Za-z0-9+/=]*|(?:Proc-Type|DEK-Info): [^\n]*)[^A-Za-z0-9+/=\n]{0,8}(?=\n|\Z)"
# kind, needs, pattern. A user name and a password, or a token, stand before the "@" of a URL; docker://x:tag@sha256:
# names an image. Without a scheme: behind "//" any host, otherwise an IPv4 address, or a host with a port, or with a
# dot and a path. A header without a scheme may be a sentence, and a token of JSON a tokenizer's: only with a digit.
_AROUND = (
    ("a private key", "-----begin",
     rf"(?P<front>)(?P<secret>-----BEGIN {_KEY}"
     rf"(?:(?:(?!-----BEGIN)(?s:.))*?-----END {_KEY}|[^\n]*(?:\n{_KEY_LINE})*))"),
    ("the end of a private key", "-----end",
     rf"(?m:^)(?P<front>)(?P<secret>(?:{_KEY_LINE}\n){{0,200}}[^A-Za-z0-9\n]{{0,12}}-----END {_KEY})"),
    ("a URL with a password", "://", rf"{_SCHEME}[^\s/?#@:'\"]*:){_URL_END}"),
    ("a URL with a token", "://",
     rf"(?i)(?<![A-Z0-9+.-])(?P<front>(?:git\+)?https?://)(?P<secret>{_HIDDEN}{_USER}[^\s/?#:'\"]+)@"),
    ("a URL with a signature or key", "=",
     r"(?i)(?P<front>[?&;](?:sig|token|access_token|auth_token|api_?key|password|secret|X-Amz-Signature|"
     rf"X-Goog-Signature)=)(?P<secret>{_HIDDEN}[^\s&;'\"]{{6,}})"),
    ("a connection string with a password", "=",
     r"(?i)(?P<front>(?:^|[\s;=])(?:password|pwd|AccountKey|SharedAccessKey|SharedAccessSignature)=)"
     rf"(?P<secret>{_HIDDEN}[^\s;'\"]+)"),
    ("a URL with a password", "//", rf"(?<![^\s'\"=,;(])(?P<front>//[^\s/?#@:'\"]*:){_URL_END}"),
    ("a URL with a password", "@",
     rf"(?<![^\s'\"=,;(])(?P<front>[A-Za-z_][\w.+-]*:)(?P<secret>{_HIDDEN}(?![\d.]{{1,5}}@)[^\s/?#:'\"]{{1,999}})@(?!sha\d+:)"
     r"(?=[\w.-]+:\d{2,5}\b|\d{1,3}(?:\.\d{1,3}){3}\b|(?:[\w-]+\.)+[A-Za-z]{2,}/)"),
    ("a header with a token", "bearer basic private-token x-api-key x-auth-token",
     r"(?i)(?P<front>\b(?:(?:Bearer|Basic)(?=\s+\S*(?:\d|=|[a-z](?-i:[A-Z])))|PRIVATE-TOKEN:|X-API-Key:|X-Auth-Token:)\s+)(?P<secret>[A-Z0-9._~+/=-]{12,})"),
    ("a header with a token", "authorization",
     rf"(?i)(?P<front>\bAuthorization\\?['\"]?\s*:\s*\\?['\"]?(?:{_AUTH}\s+|(?=\S*\d)))"
     rf"(?P<secret>(?![${{]|\*\*\*|{_AUTH}\s)[^'\"\\\r\n]{{4,}})"),
    ("a cookie", "cookie",
     r"(?i)(?P<front>\b(?:Set-)?Cookie\\?['\"]?\s*:\s*\\?['\"]?)(?P<secret>(?=[\w.-]+=)[^'\"\\\r\n]{4,})"),
    ("JSON with a secret", "\" '",
     rf"(?is)(?P<front>(?P<quote>\\?['\"])[\w.-]*(?:{_SECRET_KEY}|"
     r"token(?=\\?['\"]\s*:\s*\\?['\"](?![<\[])[^'\"\\]{0,64}\d))(?P=quote)\s*:\s*(?P=quote))"
     r"(?P<secret>(?!\*\*\*|[${])(?:\\.|(?!(?P=quote)).)+?)(?=(?P=quote)|$)"),
    ("a webhook", "hooks.slack.com webhook api.telegram.org",
     r"(?P<front>)(?P<secret>https://(?:hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]{12,}|"
     r"(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/[\w/-]{12,}|"
     r"[\w-]+\.webhook\.office\.com/webhookb2/[\w@/-]{12,}|api\.telegram\.org/(?:file/)?bot\d+:[\w/-]{12,}))"),
    ("the token of a Telegram bot", ":aa", r"(?<!\w)(?P<front>)(?P<secret>\d{8,10}:AA[\w-]{32,})"),
    ("the URL of a message service", "://",
     rf"(?P<front>(?<![\w+.-])(?=[a-z0-9]{{2,16}}://)(?:{'|'.join(sorted(SERVICES))})s?://)(?P<secret>(?!\*\*\*)[^\s'\"<>${{]{{6,}}(?=[\s'\"<>]|\Z))"),
    ("the password of a machine", "machine",  # netrc(5)
     r"(?P<front>\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9})(?P<secret>\S+)"),
    ("an API key", "login", r"(?P<front>\bwandb\s{1,9}login\s{1,9}(?:--\w{1,40}\s{1,9}){0,9})(?P<secret>\w{32,})"),
    ("an API key", "key",  # W&B's older keys have no prefix
     r"(?i)(?P<front>\b(?:api|wandb)[ _-]?key\b\W{1,5})(?P<secret>[0-9a-f]{40})(?![0-9a-f])"),
)  # fmt: skip


def _forms() -> Iterator[Form]:
    """Yield the rows of all tables."""
    yield from (Form(kind, tuple(needs.split()), pattern) for kind, needs, pattern in _AROUND)
    for kind, prefixes, rest in _rows(_TOKENS):
        token = rf"(?<![A-Za-z0-9])(?P<front>)(?P<secret>(?:{_any(prefixes)}){rest})"
        yield Form(kind, tuple(prefixes.lower().split()), token)
    for kind, programs, options in _rows(_COMMANDS):
        front = rf"\b(?:{_any(programs)})\b(?!-)['\"]?[^\n|;]{{0,300}}?[\s'\"]{options}"
        yield Form(kind, tuple(programs.split()), f"(?P<front>{front}){_WORD}")


def _rows(table: str) -> Iterator[list[str]]:
    return ([cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines())


def _any(words: str) -> str:
    return "|".join(map(re.escape, words.split()))


_NEEDS = tuple((need, form) for form in _forms() for need in form.needs)


def forms_in(text: str) -> Iterable[Form]:
    """Return the forms of which a text may have a secret, in the order of the tables."""
    lower = text.lower()
    return dict.fromkeys(form for need, form in _NEEDS if need in lower)
