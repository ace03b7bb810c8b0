"""Which files a snapshot leaves out."""

from __future__ import annotations

import pytest

from hpcrun.job.secrets import is_included, is_key, looks_secret, may_be_key


@pytest.mark.parametrize(
    "path",
    """.env .env.local prod.env conf/.envrc id_rsa keys/id_ed25519 .netrc .pypirc .aws/credentials a/.ssh/config .pgpass
    credentials.json credentials-prod.json client_secret_1.json kaggle.json x.p12 .config/gcloud/a.db
    .docker/config.json
    SECRETS.yaml .git-credentials .huggingface_token conf/api_key.txt wandb-api-key""".split(),
)
def test_a_file_so_named_looks_secret(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize(
    "path",
    """train.py env.py environment.yml .env.example .env.template id_rsa.pub keys.py credentials.py secrets.py token.txt
    tokenizer.json docker/config.json data/key.csv added_tokens.txt special_tokens pad_token.txt hf_token.py Makefile
    """.split(),
)
def test_a_file_so_named_does_not(path: str) -> None:
    assert not looks_secret(path)


@pytest.mark.parametrize(
    ("content", "size", "key"),
    [
        (b"-----BEGIN RSA PRIVATE KEY-----", 2000, True),
        (b"-----BEGIN CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----", 2000, True),
        (b"-----BEGIN CERTIFICATE-----", 2000, False),
        (b"\x01\x02", 32, True),
        (b"PK\x03\x04", 900_000, False),
        (b"", 0, False),
    ],
)
def test_a_key_is_told_from_a_certificate(content: bytes, size: int, key: bool) -> None:
    assert may_be_key("a/B.PEM")
    assert is_key("a/B.PEM", content, size) is key


def test_a_key_without_a_suffix_is_known_by_its_words_alone() -> None:
    assert may_be_key("keys/github")
    assert is_key("keys/github", b"-----BEGIN OPENSSH PRIVATE KEY-----\n", 400)
    assert not is_key("Makefile", b"all:\n", 5)
    assert not may_be_key("train.py")


def test_files_are_asked_for_by_path_name_or_folder() -> None:
    for pattern in ("certs/a.pem", "*.pem", "certs", "certs/", "c*/a.pem"):
        assert is_included("certs/a.pem", [pattern])
    for pattern in ("a", "b.pem", "cert"):
        assert not is_included("certs/a.pem", [pattern])
