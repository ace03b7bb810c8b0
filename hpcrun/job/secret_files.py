"""Which files of a project look like secrets, by their paths. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from hpcrun.job.phrases import listed
from hpcrun.job.secrets import is_secret

# Where each comes from: dotenv and direnv; ssh-keygen(1); netrc(5); pip, npm, PostgreSQL, MySQL,
# git-credential-store(1), Apache, Docker, Kubernetes, Kaggle, Vault; Google's and AWS's consoles; stores of keys
# (PKCS #12, Java, PuTTY, KeePass).
_NAMES = tuple(
    """
    .env .env.* *.env .envrc id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk .netrc _netrc .pypirc .npmrc
    .pgpass .my.cnf .git-credentials .htpasswd .dockercfg .dockerconfigjson .vault-token kaggle.json *.kubeconfig
    credentials credentials*.json credentials.yaml credentials.yml client_secret*.json service-account*.json
    service_account*.json secrets.json secrets.yaml secrets.yml secrets.toml .secrets .secrets.* *.p12 *.pfx *.jks
    *.keystore *.ppk *.kdbx
    """.split()
)
_BY_CONTENT = ("*.pem", "*.key")
_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube"})
_PATHS = ("*.config/gcloud/*", "*.docker/config.json", "*.huggingface/token", "*.cache/huggingface/token")
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")
_MOST_NAMED = 5


def looks_secret(path: str) -> bool:
    """Return whether a file's name shows that it holds secrets.

    Args:
        path: below the root of the code, with ``/``.
    """
    *folders, name = path.lower().split("/")
    if name.endswith(_EXAMPLES) or name.endswith(".pub"):
        return False
    if not _FOLDERS.isdisjoint(folders) or any(fnmatchcase(path.lower(), pattern) for pattern in _PATHS):
        return True
    return any(fnmatchcase(name, pattern) for pattern in _NAMES) or _named_like_a_secret(name)


def _named_like_a_secret(name: str) -> bool:
    """Whether a text file is named like a variable that is a secret: ``.huggingface_token``, ``api_key.txt``.

    One word is too little, and a file of tokens is a vocabulary.
    """
    stem = name.lstrip(".").removesuffix(".txt")
    return "." not in stem and len(re.split("[_-]", stem)) > 1 and not stem.endswith("tokens") and is_secret(stem)


def may_be_key(path: str) -> bool:
    """Return whether a file may be a private key, so that its content must decide: ssh-keygen's have no suffix."""
    name = path.lower().rpartition("/")[2]
    return "." not in name or is_named_key(path)


def is_named_key(path: str) -> bool:
    """Return whether a file has the name of a key, or of a certificate."""
    return any(fnmatchcase(path.lower(), pattern) for pattern in _BY_CONTENT)


def is_key(path: str, content: bytes, size: int) -> bool:
    """Return whether a file that may be a private key is one.

    Args:
        content: its beginning.
        size: of the whole file, in bytes: a small file that is not PEM may be a key in another form.
    """
    if b"PRIVATE KEY-----" in content:
        return True
    return is_named_key(path) and b"-----BEGIN" not in content and 0 < size <= 4096


def is_included(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a user requested a file, by its path, its name, or a parent folder."""
    name = path.rpartition("/")[2]
    return any(
        fnmatchcase(path, pattern) or fnmatchcase(name, pattern) or path.startswith(f"{pattern.rstrip('/')}/")
        for pattern in patterns
    )


def left_out_text(paths: Sequence[str]) -> str:
    """Return a text that names the files that are not copied."""
    return listed(paths, _MOST_NAMED)
