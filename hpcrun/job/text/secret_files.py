"""Which files hold secrets, by their names, folders and contents; a snapshot leaves them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from functools import cache

from hpcrun.job.text.recognise_secrets import is_secret

# Where each comes from: dotenv and direnv; ssh-keygen(1); netrc(5); pip, npm, PostgreSQL, MySQL,
# git-credential-store(1), Apache, Docker, Kubernetes, Kaggle, Vault; Google's and AWS's consoles;
# stores of keys (PKCS #12, Java, PuTTY, KeePass).
_FILE_NAMES = tuple(
    """
    .env .env.* *.env .envrc id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk .netrc
    _netrc .pypirc .npmrc .pgpass .my.cnf .git-credentials .htpasswd .dockercfg .dockerconfigjson
    .vault-token kaggle.json *.kubeconfig credentials credentials*.json credentials.yaml
    credentials.yml client_secret*.json service-account*.json service_account*.json secrets.json
    secrets.yaml secrets.yml secrets.toml .secrets .secrets.* *.p12 *.pfx *.jks *.keystore *.ppk
    *.kdbx
    """.split()
)
_BY_CONTENT = ("*.pem", "*.key")
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube"})
_SECRET_PATHS = (
    "*.config/gcloud/*",
    "*.docker/config.json",
    "*.huggingface/token",
    "*.cache/huggingface/token",
)
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")
MOST_NAMED = 5  # how many of the files that are not copied a message names


def looks_secret(path: str) -> bool:
    """Return whether a file's name or path shows that the file holds secrets.

    The path is the one below the root of the code.
    """
    lower = path.lower()
    *folders, name = lower.split("/")
    if name.endswith((*_EXAMPLES, ".pub")):
        return False
    if not _SECRET_FOLDERS.isdisjoint(folders) or _is_any(_SECRET_PATHS, lower):
        return True
    return _is_any(_FILE_NAMES, name) or _named_like_a_secret(name)


def _is_any(patterns: tuple[str, ...], text: str) -> bool:
    return _any_of(patterns).fullmatch(text) is not None


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))  # 20 times as fast as one after the other


def _named_like_a_secret(name: str) -> bool:
    """Return whether a text file is named like a variable that is a secret.

    Examples are ``.huggingface_token`` and ``api_key.txt``. One word is too little, and a file of
    tokens is a vocabulary.
    """
    stem = name.lstrip(".").removesuffix(".txt")
    return (
        "." not in stem
        and len(re.split("[_-]", stem)) > 1
        and not stem.endswith("tokens")
        and is_secret(stem)
    )


def may_be_key(path: str) -> bool:
    """Return whether a file may be a private key, so that its content must decide.

    The keys of ssh-keygen have no suffix.
    """
    name = path.lower().rpartition("/")[2]
    return "." not in name or is_named_key(path)


def is_named_key(path: str) -> bool:
    """Return whether a file has the name of a key, or of a certificate."""
    return _is_any(_BY_CONTENT, path.lower())


def is_key(path: str, content: bytes, size: int) -> bool:
    """Return whether a file that may be a private key is one.

    The beginning of the file and its size in bytes decide. A small file that is not PEM may be a
    key in another form.
    """
    if b"PRIVATE KEY-----" in content:
        return True
    return is_named_key(path) and b"-----BEGIN" not in content and 0 < size <= 4096


def is_included(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a user requested a file, by its path, its name, or a parent folder."""
    name = path.rpartition("/")[2]
    return any(
        fnmatchcase(path, pattern)
        or fnmatchcase(name, pattern)
        or path.startswith(f"{pattern.rstrip('/')}/")
        for pattern in patterns
    )
