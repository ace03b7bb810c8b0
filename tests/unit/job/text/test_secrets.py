"""Secrets: their values stand nowhere but in the environment of the submission."""

from __future__ import annotations

import base64
import html
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun.actions.jobs.new_run import run_record
from hpcrun.actions.jobs.prepare import prepare
from hpcrun.actions.jobs.resubmit import repeated
from hpcrun.errors import UsageError
from hpcrun.job.request.read_request import check_secrets, read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.hide_secrets import SecretHider
from hpcrun.job.text.recognise_secrets import (
    SERVICES,
    is_secret,
    secret_arguments,
    secret_in_command,
    secret_kind,
)
from hpcrun.job.text.secret_files import is_included, is_key, looks_secret, may_be_key
from hpcrun.runs.store import RunStore
from hpcrun.views.plan_text import plan_lines, prepared_json
from tests.unit.builders import (
    Takes,
    plan,
    ports,
    request,
    script,
    slurm_profile,
    surroundings,
    write,
)

TOKEN = "a1B2" * 12  # what stands behind the prefix of a made-up token


@pytest.mark.parametrize(
    "variable",
    """
    HF_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN DB_PASSWORD
    SLURM_JWT TOKEN hf_token NCCL_PSK MYSQL_PWD DB_PASS SSHPASS GITHUB_PAT OPENAI_AUTH TOKENS
    PGPASSWORD
    GHTOKEN API_KEYS KAGGLE_KEY BW_SESSION CLIENT_SECRET SSH_PASSPHRASE KEYCLOAK_CREDENTIALS TOKEN1
    WANDB_KEY2 HF_TOKEN_2 DB_PASS_OLD MYSQL_PWD2 SSHKEY MYKEY SECRETKEY AUTHKEY SIGNINGKEYS
    REFRESHTOKEN_V2 dbPassword OPENAIAPIKEY_PROD MYCREDENTIALS_NEW TOKENVALUE SECRETVALUE
    ENCRYPTION_KEYS SSH_KEYS_OLD COOKIE SESSION_COOKIES HMAC WEBHOOK_HMAC TOKENS=512words
    TOKENS=1234567890123 DB_PASSWORD=123456 DB_PASS=123456
    GOOGLE_APPLICATION_CREDENTIALS={"type":"service_account"}
    """.split(),
)
def test_a_variable_of_this_name_is_a_secret(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert is_secret(name)
    assert is_secret(name, value or "some thing")
    assert not is_secret(name, "")


@pytest.mark.parametrize(
    "variable",
    """
    TOKENIZERS_PARALLELISM MONKEY KEYBOARD PASSWORDLESS NCCL_DEBUG HF_HOME KEYS MAX_TOKENS
    NUM_TOKENS n_tokens PASS_THROUGH COMPASS CUDA_PATH PATH BYPASS KEYS_PER_NODE PWD OLDPWD
    SSH_AUTH_SOCK XAUTHORITY GIT_ASKPASS DB_PASSWORD_FILE TOKEN_URL KEY_SIZE PAD_TOKEN AUTHOR
    PATIENCE _ TOKENIZER TOKENIZER_PATH TOKENISER DETOKENIZE MAXTOKENS NTOKENS MAX_NEW_TOKENS
    NUM_TOKENS_2 TOKENS_PER_SECOND HOTKEY MONKEY2 KEYS_PER_GPU API_KEYS_PER_NODE DUMMYKEY
    COOKIECUTTER SSHKEYGEN COOKIE_FILE HMAC_ALGORITHM DB_PASSWORD_FILE_OLD SECRETARY 2 V2 OLD _2
    METRIC_KEY SORT_KEY LABEL_KEY DATA_KEY PUBLIC_KEY FORWARD_PASS GLOB_PAT BEST_METRIC_KEYS
    """.split(),
)
def test_a_variable_of_this_name_is_none(variable: str) -> None:
    assert not is_secret(variable)
    assert not is_secret(variable, "some thing")


@pytest.mark.parametrize(
    "variable",
    """
    TOKENS=512 EOS_TOKEN=</s> NEW_TOKEN=[MASK] SECOND_PASS=2 TOKEN1=512
    MYCREDENTIALS=/home/me/key.json SORT_KEY=true INIT_PWD=/home/me
    GOOGLE_APPLICATION_CREDENTIALS=/home/me/key.json EOSTOKEN=</s> DB_PASSWORD=true
    """.split(),
)
def test_a_name_that_means_other_things_as_well_is_judged_by_its_value(variable: str) -> None:
    assert not is_secret(*variable.split("="))


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("postgres://u:p@h/", "postgres://u:***@h/"),
        ("redis://:p@ss@h:6379/0", "redis://:***@h:6379/0"),
        ("git+https://token@github.com/a/b", "git+https://***@github.com/a/b"),
        ("https://a.core.net/c?sv=1&sig=abcdefgh&x=1", "https://a.core.net/c?sv=1&sig=***&x=1"),
        ("host=h user=u password=hunter2 dbname=d", "host=h user=u password=*** dbname=d"),
        ("AccountName=a;AccountKey=abc==", "AccountName=a;AccountKey=***"),
        *(
            (f"see {prefix}{TOKEN}", "see ***")
            for prefix in ("ghp_", "github_pat_", "hf_", "sk-", "sk-proj-")
        ),
        (f"xoxb-1-{TOKEN}", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdef", "***"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "***"),
        (f"-H 'Authorization: Bearer {TOKEN}'", "-H 'Authorization: Bearer ***'"),
        ("Authorization: Basic dTpw", "Authorization: Basic ***"),
        ("authorization: hush1", "authorization: ***"),
        ("{'Authorization': 'Bearer hush1'}", "{'Authorization': 'Bearer ***'}"),
        ("X-Auth-Token: hush1-hush1-hush1", "X-Auth-Token: ***"),
        ('{"user": "u", "password": "hunter2"}', '{"user": "u", "password": "***"}'),
        ('{"password": "hun\\"ter2", "x": 1}', '{"password": "***", "x": 1}'),
        (
            '{\\"db_password\\": \\"hunter2\\", \\"x\\": 1}',
            '{\\"db_password\\": \\"***\\", \\"x\\": 1}',
        ),
        ("{'client_secret':'hunter2'}", "{'client_secret':'***'}"),
        ('{"token": "a1b2c3d4"}', '{"token": "***"}'),
        ('{"apiKey": "a1b2c3d4"', '{"apiKey": "***"'),
        ("u:pw@h:5432/db", "u:***@h:5432/db"),
        ("dsn=u:pw@db.example.org/x", "dsn=u:***@db.example.org/x"),
        ("u:p@w@10.0.0.1", "u:***@10.0.0.1"),
        ("//u:pw@h", "//u:***@h"),
    ],
)
def test_a_value_of_this_form_is_a_secret_whatever_its_name(value: str, hidden: str) -> None:
    assert is_secret("X", value)
    assert SecretHider().hide(value) == hidden
    assert secret_kind(hidden) is None


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("export WANDB_API_KEY=abc", "the value of WANDB_API_KEY"),
        ("export TOKEN='$x'", "the value of TOKEN"),
        ("setenv HF_TOKEN abc", "the value of HF_TOKEN"),
        ("pip install git+https://tok@github.com/a/b", "a URL with a token"),
        (f"wandb login {'a1' * 20}", "an API key"),
        ("huggingface-cli login --token hunter22abcd", "the value of --token"),
        ("mytool --password 'hunter 22abcd' \"it's", "the value of --password"),
        ("db_pass=hunter22; export db_pass", "the value of db_pass"),
        ("bash -c 'python x.py --password hunter22'", "the value of --password"),
        ("bash -c 'export A_TOKEN=hunter22'", "the value of A_TOKEN"),
        *(
            (command, None)
            for command in (
                "bash -c 'train --api-key \"$KEY\"'",
                "mytool --password `cat file`",
                "mytool --password <(cat file)",
                "export HF_TOKEN=$(cat ~/.hf)",
                "export HF_TOKEN=$OTHER",
                "pip install git+https://${GH}@github.com/a/b",
                "export MAX_TOKENS=512",
                "awk -v key=2 '{print $key}' file",
                "sort --key=2",
                "source ~/.secrets",
            )
        ),
    ],
)
def test_a_secret_in_a_set_up_command_is_found(command: str, found: str | None) -> None:
    assert secret_in_command(command) == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--api-key", "hunter22"], ["the value of --api-key"]),
        (["--wandb.api_key=hunter22"], ["the value of --wandb.api_key"]),
        (["+trainer.password=hunter22"], ["the value of +trainer.password"]),
        (["--x", f"sk-{TOKEN}"], ["an API key"]),
        (["bash", "-c", "python x.py --password hunter22"], ["the value of --password"]),
        (["bash", "-c", 'train --api-key "$KEY"'], []),
        (["\x01\x0b\x01", "a\u2003b"], []),  # str.split() splits these, the shell does not
        (["--password", "$DB_PASS"], []),
        (["--token", "bpe"], []),
        (["--pad-token", "<pad>", "--max-tokens", "512", "--sort-key", "name_of_it"], []),
    ],
)
def test_arguments_that_look_like_secrets_are_found(arguments: list[str], found: list[str]) -> None:
    assert list(secret_arguments(arguments)) == found


@given(st.lists(st.text(alphabet="ab \t\n\x0b\x1c\u2003'\"\\$=-", max_size=30), max_size=4))
def test_any_arguments_are_read_to_an_end(arguments: list[str]) -> None:
    assert list(secret_arguments(arguments)) == []


def test_a_secret_s_value_is_neither_in_the_plan_nor_in_the_script(
    subtests: pytest.Subtests,
) -> None:
    decided = plan(
        slurm_profile(env={"WANDB_API_KEY": "hf_s3cr3t"}),
        env=["HF_TOKEN=hf_s3cr3t", "HF_HOME=/data"],
    )
    assert decided.env == (("WANDB_API_KEY", None), ("HF_TOKEN", None), ("HF_HOME", "/data"))
    text = "\n".join((script(decided), *plan_lines(decided)))
    assert "hf_s3cr3t" not in text + json.dumps(asdict(decided))
    for part in ("HF_TOKEN=***", "export HF_TOKEN\n", "|| fail 'HF_TOKEN is not set"):
        with subtests.test(part=part):
            assert part in text


# --- nothing that is kept or shown holds the value of a secret variable --------------------------

_names = st.sampled_from(
    """
    HF_TOKEN MYSQL_PWD DB_PASS SSHPASS GITHUB_PAT OPENAI_AUTH API_KEYS wandb_api_key TOKENS
    DBPASSWORD_2 MYKEY COOKIE
    """.split()
)
_hearts = st.text("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNP", min_size=8, max_size=12).map(
    lambda text: f"{text}0q7Z"
)
_forms = st.sampled_from(
    """
    postgres://u:%s@h/db https://%s@github.com/a/b ghp_%s%s hf_%s%s sk-proj-%s%s glpat-%s%s xoxb-%s
    https://h/x?sig=%s eyJ%s.%s.%s password=%s {"password":"%s"} u:%s@h:5432/db //u:%s@h
    """.split()
)
_odd = st.sampled_from(["", " ", "'", '"', "\\", "\n", "$", "`", "é", "\udcff", ";"])


@st.composite
def _secrets(draw: st.DrawFn) -> tuple[str, str, str, bool]:
    """A variable, its value, the part of the value that may stand nowhere, and whether it is named
    with --secret.
    """
    heart, way = draw(_hearts), draw(st.sampled_from(["name", "value", "named"]))
    if way == "value":
        form = draw(_forms)
        return "PLAIN", form.replace("%s", heart), heart, False
    name = draw(_names) if way == "name" else "PLAIN"
    return name, f"{draw(_odd)}{heart}{draw(_odd)}{heart}", heart, way == "named"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("secrets") / "job.py", "").parent


@settings(max_examples=60)
@given(secret=_secrets(), profile=st.sampled_from(["local", "a100"]), sweep=st.booleans())
def test_no_secret_is_kept_or_shown(
    secret: tuple[str, str, str, bool], profile: str, sweep: bool, folder: Path
) -> None:
    name, value, heart, is_named = secret
    said = {"secrets": [name]} if is_named else {}
    said |= {"sweep": ["lr=1,2"]} if sweep else {}
    asked = request("job.py", gpus="0", env=[f"{name}={value}", "HF_HOME=/data"], **said)
    ready = prepare(asked, profile, surroundings(folder), lambda: Machine(cpus=1))
    assert ready.secrets() == {name: value}
    run = run_record(ready, ports(RunStore(folder / "runs"), Takes(), 0.0), surroundings(folder))
    kept = [
        ready.script,
        json.dumps(asdict(run)),
        json.dumps(prepared_json(ready)),
        *plan_lines(ready.plan),
    ]
    assert all(heart not in text for text in kept)
    # and it comes back from the environment when the run is submitted again
    again = repeated(run, {}, {name: value})
    assert dict(again["env"])[name] == value


@given(heart=_hearts, form=_forms)
def test_no_message_says_a_secret(heart: str, form: str) -> None:
    value = form.replace("%s", heart)
    parts = ({"setup": [f"curl {value}"]}, {"sbatch": [f"comment={value}"]}, {"load": [value]})
    for said in (*parts, {"args": ["--x", value]}, {"sweep": [f"y=1,{value}"]}):
        with pytest.raises(UsageError) as refused:
            check_secrets(request("job.py", **said))
        assert heart not in refused.value.message + (refused.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"env": ["HF_TOKEN hunter22"]}, "one variable has no '='"),
        ({"secrets": ["HF_TOKEN=hunter22"]}, "--secret: takes a name, not 'HF_TOKEN' and a value"),
        ({"setup": ["export HF_TOKEN=hunter22"]}, "--setup holds the value of HF_TOKEN"),
    ],
)
def test_a_refusal_does_not_repeat_what_may_be_a_secret(
    asked: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_secrets(request("job.py", **asked))
    assert words in refused.value.message
    assert "hunter22" not in refused.value.message + (refused.value.hint or "")


@pytest.mark.parametrize(
    "asked",
    [
        {"setup": ["module load %s"]},
        {"sbatch": ["comment=%s"]},
        {"name": "%s"},
        {"env": ["OTHER=x %s"]},
        {"notify": ["mailto:%s@h.org"]},
        {"args": ["x-%s"]},
        {"args": ["pass%%2Fw"]},
        {"sweep": ["x=1,%s"]},
        {"load": ["%s"]},
        {"workdir": "/data/%s"},
        {"python": "/opt/%s/python"},
        {"srun": ["comment=%s"]},
        {"partition": "%s"},
        {"gpus": "%s:4"},
        {"mounts": ["/%s:/data"]},
        {"snapshot_include": ["%s"]},
        {"sweep_file": "%s.csv"},
    ],
)
def test_a_known_value_is_refused_in_every_field_and_not_repeated(asked: dict[str, Any]) -> None:
    value = "pass/w" if "pass%" in str(asked) else "hunter.22a"
    filled = {
        name: text % value
        if isinstance(text, str)
        else [one.replace("%s", value) % () for one in text]
        for name, text in asked.items()
    }
    typed = request("job.py", **filled)
    for name, named in (("MYSEC", ["MYSEC"]), ("MY_TOKEN", [])):
        if named or len(value) >= 8:
            with pytest.raises(UsageError, match=f"the value of {name}, which") as refused:
                check_secrets(typed, {name: value}, named)
            assert value not in refused.value.message + str(refused.value.hint)
    check_secrets(typed, {"PLAIN": value}, ["OTHER"])


def test_a_secret_may_be_the_value_of_secret_variables() -> None:
    typed = request("job.py", env=["MYSEC=hunter22a", "HF_TOKEN=hunter22a"], secrets=["MYSEC"])
    check_secrets(typed, {"MYSEC": "hunter22a"}, ["MYSEC"])


def test_a_value_that_cannot_be_read_is_not_repeated_where_it_is_a_secret() -> None:
    said: dict[str, Any] = {
        "secrets": ["MYSEC"],
        "env": ["MYSEC=hunter22a", "OTHER_TOKEN=hunt er22b"],
    }
    with pytest.raises(UsageError) as refused:
        read_request(
            {"script": "job.py", **said, "walltime_s": "hunter22a", "name": "a/hunt er22b"}
        )
    assert "--time" in refused.value.message
    assert "hunt" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"export HF_TOKEN=hf_{TOKEN}", "export HF_TOKEN=***"),
        ("--lr 1e-3 --api-key hunter2hunter", "--lr 1e-3 --api-key ***"),
        ("x --password='hunter 22' y", "x --password='***' y"),
        ('api_key = "abc123def"', 'api_key = "***"'),
        ("os.environ['X_SECRET'] = 's3cr3tvalue'", "os.environ['X_SECRET'] = '***'"),
        ("password: hunter2!", "password: ***"),
        ("wandb login 0123456789abcdef0123456789abcdef01234567", "wandb login ***"),
        ("api key: 0123456789abcdef0123456789abcdef01234567", "api key: ***"),
        ("key wandb_v1_" + TOKEN, "key ***"),
        (
            "machine api.wandb.ai login user password abcdefgh",
            "machine api.wandb.ai login user password ***",
        ),
        ("it was correcthorse9battery", "it was ***"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb", "a\n***\nb"),
        ("b c\n+MIIEowIBAAKCAQEA12345\n+Mw==\n+-----END RSA PRIVATE KEY-----\nb", "b c\n***\nb"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
            "MIIEowIBAAKCAQEA12345\nb c d",
            "***\nb c d",
        ),
    ],
)
def test_a_secret_in_a_text_for_others_is_hidden_and_counted(text: str, shown: str) -> None:
    hider = SecretHider(
        {"MY_TOKEN": "correcthorse9battery", "PATH": "/usr/bin:/bin", "SHORT_TOKEN": "abc"}
    )
    assert hider.hide(text) == shown
    assert hider.count == 1
    assert hider.hide(shown) == shown
    assert hider.hide(text) == shown
    assert hider.count == 1


@pytest.mark.parametrize(
    "text",
    [
        'df.sort_values(key="loss")',
        "token = batch[0]",
        "password = getpass.getpass()",
        "key: value",
        "KEYS: 4",
        "loss: 0.5 tokens: 512 tokens_per_s=3000 step=4",
        "max_new_tokens=128",
        "AWS_SECRET_ACCESS_KEY=${X}",
        "--secret HF_TOKEN train.py",
        "--env HF_TOKEN=***",
        "NCCL_DEBUG=WARN",
        "pad_token = tokenizer.eos_token",
        "self.token_embedding = nn.Embedding(8, 8)",
        "def f(token: str, password: Optional[str] = None)",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "secret: True",
        "tokenizer = AutoTokenizer",
        "curl -u $USER:$PW https://h/",
        'mysql -p"$PW"',
        "sshpass -p $PW ssh h",
        "redis-cli -a $PW",
        "mkdir -p a/b",
        "docker run -p 8080:80 image",
        "slack://$TOKEN/#ml",
        "discord://$ID/$TOKEN",
        "Cookie: none",
        "cookies: 3",
        "api_key=api_key",
        "cache_key: resnet",
        "train_tokens: 1.2B",
        "token_rate: 3.2e5",
        "backward_pass: 12.3ms",
        "redis-cli --scan",
        "python -m http.server",
        "s3://bucket/run-2024abc123",
        "env://",
        "tcp://10.0.0.1:29500",
        "first_pass: forward",
        "👩\u200d🔬 می\u200cخواهم",
        "the page may show the value of MY_SECRET, which is not set here",
        "--secret takes a name, not 'HF_TOKEN' and a value, which comes from your environment",
        "--setup holds the value of HF_TOKEN, which the script, the run's record and process lists "
        "would show",
        "https://github.com/a/b",
        "ssh://git@github.com/a/b",
        "http://proxy.site:3128",
        "https://${TOKEN}@github.com/a",
        "postgres://u:$PASS@h/",
        "docker://image:tag@sha256:0123abcd",
        "someone@site.org:/data",
        "eyJ",
        "sk-learn-random-forest-experiment",
        "task-abcdefghijklmnopqrstuvwx",
        "hf_transformers_cache_of_this_machine",
        # a commit: nothing is guessed by how random it looks
        "-----BEGIN CERTIFICATE-----",
        "deadbeef" * 5,
        "Authorization: Bearer $TOKEN",
        "Authorization: token ${TOKEN}",
        "authorization: required",
        "//u:$PASS@h",
        '{"pad_token": "<|extra_id_12|>", "eos_token": "[SEP]", "token": "bpe"}',
        "u:${PASS}@h:5432/db",
        '{"password": "", "secret": "$SECRET", "token": null, "tokenizer": "gpt2-v1"}',
        "python:3.11@sha256:0123abcd",
        "registry:5000/image:tag@sha256:0123abcd",
        "me@site.org:22/data",
        "cosine:0.1@10",
        "model:v2@main",
        "12:30@15:45",
        "mailto:me@cs.example.edu",
        "git+https://git@github.com/x/y",
        "lr:3@node-1:29500",
        "https://org@dev.azure.com/org/project/_git/code",
        "Basic understanding-of-things",
        "Bearer of-good-news-everyone",
        "contact:me@cs.example.edu",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert not is_secret("X", text)
    hider = SecretHider({"A_PASSWORD": "short", "EDITOR": "vi"})
    assert hider.hide(text) == text
    assert hider.count == 0


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
        ("client_secret=GhushhushHush", "GhushhushHush"),
        ("refresh_token: 1f4e5d6c7b8a", "1f4e5d6c7b8a"),
        ("db_pass: hunter22", "hunter22"),
        ("neptune_api_token=abcDEF0123456789==", "abcDEF0123456789=="),
        ('{"db_pass": "hunter22"}', "hunter22"),
        *(
            (text, "hush")
            for text in (
                "curl -fsS -u ada:hushhush https://h/",
                "['curl', '-u', 'ada:hushhush', 'https://h/']",
                "mysql -h db -u ada -phushhush",
                "mysqldump --all -p'hush hush' x",
                "sshpass -p hushhush ssh h",
                "sshpass -phushhush ssh h",
                "redis-cli -h h -a hushhush ping",
                "redis-cli -ahushhush ping",
                "docker login -u ada -p hushhush ghcr.io",
                "['login', '--password', 'hushhush1']",
                "?api_key=hushhush",
                "Cookie: session=hushhush; theme=dark",
                "< Set-Cookie: sid=hushhush; Path=/",
                "{'Cookie': 'session=hushhush'}",
                "https://discord.com/api/webhooks/4711/hushHUSH-hush_1",
                "https://discordapp.com/api/v10/webhooks/4711/hushHUSH-hush_1",
                "tgram://123456789:hushhush/4711",
                "https://site.webhook.office.com/webhookb2/1-2@3-4/IncomingWebhook/hush/5-6",
                "https://api.telegram.org/bot123456789:AAhushhush/send",
                "bot 123456789:AA" + "hush_" * 7,
                "slack://hushTokenA/hushTokenB/hushTokenC",
                "discord://4711/hushhush",
                "mmosts://h/hushhush",
            )
        ),
        *(
            (prefix + TOKEN, TOKEN)
            for prefix in (
                "dckr_pat_",
                "ya29.",
                "shpat_",
                "r8_",
                "hvs.",
                "GOCSPX-",
                "pplx-",
                "glsa_",
                "gho_",
            )
        ),
        (f"SG.{TOKEN}.{TOKEN}", TOKEN),
        ("dop_v1_" + "a1" * 32, "a1a1"),
        ("AGE-SECRET-KEY-1" + "QPZRY9X8" * 7, "QPZRY9X8"),
        ("token='a1b2c3d4e5'", "a1b2c3d4e5"),
        ("requests.get(url, params={'api_key': 'a1b2c3d4'})", "a1b2c3d4"),
        ("g\u200bhp_" + TOKEN, TOKEN),
        ("ghp_" + "\u200d".join(TOKEN), "\u200d".join(TOKEN)),
        ("ghp_\x1b[31m" + TOKEN, TOKEN),
        ("gh\ufe0fp_" + TOKEN, TOKEN),
    ],
)
def test_a_secret_of_this_form_is_hidden_in_texts(text: str, secret: str) -> None:
    hider = SecretHider()
    assert secret not in hider.hide(f"a line\n{text}\nanother line")
    assert "***" in hider.hide(text)
    assert hider.hide(hider.hide(text)) == hider.hide(text)
    assert hider.count == 1


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("correct horse", "correct\n  horse"),
        ("a/b c+d&e=f", "a%2Fb%20c%2Bd%26e%3Df"),
        ("p\nq-is-long-enough-here", "q-is-long-enough-here"),
        ("tab\there", "'tab\\there'"),
        ('say "hush"', '{"x": "say \\"hush\\""}'),
        ("correcthorse9battery", "RuntimeError: correcthorse9bat… at a.py:3"),
        ("hu5h", "it is hu5h."),
        ("json://h:8080/hushHUSH/a1b2c3d4", "POST http://h:8080/hushHUSH/a1b2c3d4 failed"),
        ("correcthorse", "correct\u200bhorse"),
        ("correcthorse", "correct\ufe0fhorse"),
        ("correcthorse", "correct\x9b31mhorse\x9b0m"),
        ("correcthorse", "c\bco\borrect\bthorse"),
        ("correcthorse", "correctX\bhorse"),
        ("correcthorse", "correcthorse" + "\b" * 12),
        ("correcthorse", "correcth\rorse"),
        ("correcthorse", "correct\n    horse"),
        ("correcthorse", "│ it is correct   │\n│   horse          │"),
        ("correcthorse", "'correct'\n 'horse'"),
        ("correct horse", "│ it is correct │\n│ horse         │"),
        ("correcthorse", base64.b64encode(b"correcthorse").decode()),
        ("correcthorse", base64.b64encode(b"me:correcthorse").decode()),
        ("correcthorse", base64.b64encode(b"you:correcthorse").decode()),
        ("correcthorse", base64.encodebytes(b"a" * 51 + b"correcthorse").decode()),
        *(
            (odd, form(odd))
            for odd in ("pass/wö rd<&'\">%\\", "a/b c+d&e=f")
            for form in (
                quote,
                quote_plus,
                lambda text: quote_plus(text).lower(),
                lambda text: quote(text, safe="").lower(),
                html.escape,
                lambda text: html.escape(text, quote=False),
                repr,
                lambda text: repr(text.encode()),
                json.dumps,
                lambda text: json.dumps(text, ensure_ascii=False),
                lambda text: json.dumps(json.dumps({"a": text})),
                lambda text: json.dumps(json.dumps({"a": text}), ensure_ascii=False),
            )
        ),
    ],
)
def test_a_declared_value_is_hidden_as_programs_print_it(value: str, printed: str) -> None:
    hider = SecretHider({"WORD": value, "OTHER": "correct"}, ["WORD"])
    assert "***" in hider.hide(printed)
    assert SecretHider({"WORD": value}).hide(printed) == printed
    parts = (
        "hu5h hushHUSH a1b2c3d4 correcthorse q-is b3JyZWN0aG9yc2 9ycmVjdGhvcn 29ycmVjdGhvcnNl pass"
    )
    for part in parts.split():
        assert part not in hider.hide(printed)


def test_a_short_declared_value_is_hidden_as_a_word_of_its_own_alone() -> None:
    hider = SecretHider({"PIN": "4711", "SWITCH": "true"}, ["PIN", "SWITCH"])
    assert hider.hide("job 147112 is true: 4711") == "job 147112 is true: ***"


def test_hpcrun_s_own_names_in_json_are_never_touched() -> None:
    hider = SecretHider(
        {"A": "rank", "B": "walltime_s", "C": "cpu-1", "D": "correct-horse"}, "ABCD"
    )
    document: dict[str, Any] = {
        "rank": 1,
        "walltime_s": [4, {"rank": "on cpu-1"}],
        "correct-horse": 0,
    }
    assert hider.hide_all(document) == {"rank": 1, "walltime_s": [4, {"rank": "on ***"}], "***": 0}
    document = {
        "n": None,
        "x": [True, 0.5, {"a": "token ghp_" + TOKEN}],
        "path": Path("/data"),
        "r": (1, 2),
    }
    assert hider.hide_all(document) == {
        "n": None,
        "x": [True, 0.5, {"a": "token ***"}],
        "path": "/data",
        "r": [1, 2],
    }


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "      ",
        "\n\n\n\n\n",
        "\udcff" * 9,
        "\x00" * 9,
        "*" * 9,
        "…" * 9,
        "'" * 9,
        "│'" * 9,
    ],
)
def test_an_odd_value_hides_nothing_else(value: str) -> None:
    text = "a line: 1\n  of a log"
    assert SecretHider({"A_PASSWORD": value, "B": value}, ["B"]).hide(text) == text


def test_names_that_are_declared_later_are_hidden_from_then_on() -> None:
    hider = SecretHider({"WORD": "correcthorse"})
    assert hider.hide("correcthorse") == "correcthorse"
    hider.learn(named=["WORD"])
    assert hider.hide("correcthorse") == "***"
    hider.learn({"WORD": "battery-staple"})
    assert hider.hide("battery-staple") == "***"


LOGS = Path(__file__).parents[3] / "data/explain"


def test_nothing_is_hidden_in_the_logs_of_programs_that_have_no_secrets() -> None:
    texts = [
        path.read_bytes().decode("utf-8", "replace") for path in LOGS.rglob("*") if path.is_file()
    ]
    assert sum(map(len, texts)) > 1_000_000
    assert [text for text in texts if SecretHider().hide(text) != text] == []


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it
def test_the_schemes_of_services_are_those_of_apprise() -> None:
    from apprise.plugins import N_MGR

    # an earlier version's
    known: set[str] = {*N_MGR.schemas(), "msteams"}  # type: ignore[no-untyped-call]
    assert not SERVICES - known


@pytest.mark.parametrize(
    "part",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----\n",
        "MIIEMIIEMIIEMIIE\n",
        '"',
        "-----BEGIN PRIVATE KEY-----\n",
        "a\n-----END PRIVATE KEY",
        "curl ",
        "mysql -p ",
        "slack://$",
        "Cookie: ",
        "correcthors…",
        "a=",
        "--a ",
        "a:",
        "Bearer ",
        '\\"token\\":',
        "http://",
        "password = ",
        "machine ",
        "wandb login --a ",
        "?token=",
        "a.b-c_",
        "eyJabcdefg.",
        " ",
        "\b",
        "a\b",
        "\n",
        "│\n",
        "correct horse\n",
        "correct\n",
    ],
)
def test_hiding_takes_no_longer_than_the_text(part: str) -> None:
    start = time.process_time()
    SecretHider({"T_TOKEN": "correcthorse9battery", "U_TOKEN": "correct horse"}).hide(
        part * (100_000 // len(part))
    )
    assert time.process_time() - start < 2


def test_a_file_looks_secret_by_its_name() -> None:
    for path in """
        .env .env.local prod.env conf/.envrc id_rsa keys/id_ed25519 .netrc .pypirc .aws/credentials
        a/.ssh/config .pgpass credentials.json credentials-prod.json client_secret_1.json
        kaggle.json x.p12 .config/gcloud/a.db .docker/config.json SECRETS.yaml .git-credentials
        .huggingface_token conf/api_key.txt wandb-api-key
    """.split():
        assert looks_secret(path), path
    for path in """
        train.py env.py environment.yml .env.example .env.template id_rsa.pub keys.py credentials.py
        secrets.py token.txt tokenizer.json docker/config.json data/key.csv added_tokens.txt
        special_tokens pad_token.txt hf_token.py Makefile
    """.split():
        assert not looks_secret(path), path


def test_a_key_is_told_from_a_certificate(subtests: pytest.Subtests) -> None:
    for path in ("a/B.PEM", "keys/github"):
        assert may_be_key(path)
    assert not may_be_key("train.py")
    for content, size, key in (
        (b"-----BEGIN RSA PRIVATE KEY-----", 2000, True),
        (b"-----BEGIN CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----", 2000, True),
        (b"-----BEGIN CERTIFICATE-----", 2000, False),
        (b"\x01\x02", 32, True),
        (b"PK\x03\x04", 900_000, False),
        (b"", 0, False),
    ):
        with subtests.test(content=content):
            assert is_key("a/B.PEM", content, size) is key, content
    assert is_key("keys/github", b"-----BEGIN OPENSSH PRIVATE KEY-----\n", 400)
    assert not is_key("Makefile", b"all:\n", 5)


def test_files_are_asked_for_by_path_name_or_folder(subtests: pytest.Subtests) -> None:
    for pattern in ("certs/a.pem", "*.pem", "certs", "certs/", "c*/a.pem"):
        with subtests.test(pattern=pattern):
            assert is_included("certs/a.pem", [pattern])
    for pattern in ("a", "b.pem", "cert"):
        with subtests.test(pattern=pattern):
            assert not is_included("certs/a.pem", [pattern])
