"""The command that is shown for a hostile script: pasted into a shell, it runs nothing and changes no literal."""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.importing.convert import ImportedScript, convert_script
from hpcrun.job.importing.directives import parse_array
from hpcrun.job.importing.source import ansi_c_value, without_secrets
from hpcrun.job.importing.words import shell_text

HEAD = "#!/bin/bash\n#SBATCH --gpus-per-node=4 --cpus-per-task=8\n"
RUN = "\x01RAN"
_SHELL = (
    f"hpcrun() {{ printf '%s\\0' \"$@\"; }}; cmd() {{ printf '{RUN}\\0' >&2; printf '{RUN}'; }}; VAR='v a;l'; PATH=/x; "
)


def pasted(script: ImportedScript) -> list[str]:
    """What hpcrun gets from the command that is shown; fails if the shell ran anything of the script."""
    words = [
        word for name, value in script.options for word in ([name] if value is None else [name, shell_text(value)])
    ]
    line = " ".join(["hpcrun", *words, *(shell_text(word) for word in script.program)])
    done = subprocess.run(["/bin/bash", "--norc", "-c", _SHELL + line], capture_output=True, check=False)
    assert done.stderr == b"", (line, done.stderr)
    assert RUN.encode() not in done.stdout
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


def unknown(script: ImportedScript) -> list[str]:
    """Why statements are not understood."""
    return [each.words for each in script.lines if each.verdict == "unknown"]


@pytest.mark.parametrize(
    "text",
    [
        "srun --comment=$(cmd) python a.py",
        "srun --comment=`cmd` python a.py",
        "srun --comment $(cmd) python a.py",
        "srun --comment=<(cmd) python a.py",
        "srun --comment=$((1+$(cmd))) python a.py",
        "srun --comment=${X:-$(cmd)} python a.py",
        "srun --container-image=$(cmd) python a.py",
        "srun --container-mounts=/a:$(cmd) python a.py",
        "torchrun --max-restarts=$(cmd) --nproc-per-node 4 a.py",
        "FOO=$(cmd) python a.py",
        "FOO=a$(cmd) srun python a.py",
        "env FOO=$(cmd)x srun python a.py",
        "FOO=$SLURM_JOB_ID python a.py",
        "srun --comment=$SLURM_JOB_ID python a.py",
    ],
)
def test_a_command_in_an_option_is_not_understood(text: str) -> None:
    script = convert_script(HEAD + text)
    pasted(script)
    in_job = any("VALUE_1" in account for account in map(str, script.options))
    assert unknown(script) or in_job


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"srun --comment=$'a$(cmd)\n' python a.py", ["--srun", "comment=a$(cmd)\n"]),
        (r"""FOO=$'a"$(cmd)"\n' python a.py""", ["--env", 'FOO=a"$(cmd)"\n']),
        (r"FOO=$'a$(cmd)\n' srun python a.py", ["--env", "FOO=a$(cmd)\n"]),
        (r"srun --container-image=$'a`cmd`\x41' python a.py", ["--container", "a`cmd`A"]),
        (r"python a.py --a $'a$(cmd)\n'", ["a.py", "--a", "a$(cmd)\n"]),
        (r"env FOO=$'\'$(cmd)' python a.py", ["--env", "FOO='$(cmd)"]),
        ('python a.py "$VAR!cmd!!"', ["a.py", "v a;l!cmd!!"]),
        ('python a.py $"a b"', ["a.py", "a b"]),
    ],
)
def test_a_literal_arrives_as_it_is(text: str, words: list[str]) -> None:
    script = convert_script(HEAD + text)
    found = pasted(script)
    assert unknown(script) == []
    assert "\0".join(words) in "\0".join(found)


def test_no_exclamation_mark_stands_in_double_quotes() -> None:
    assert shell_text(convert_script(f'{HEAD}python a.py "$HOME/a!b"').program[1]) == "\"${HOME}\"'/a!b'"
    assert shell_text(convert_script(f"{HEAD}python a.py $'a!b\\n'").program[1]) == r"$'a\x21b\x0a'"


TEXT = st.lists(
    st.sampled_from([*"ab019 \t\n\\'\"$`!;&|(){}<>*?#~=,", "é", "$(cmd)", "`cmd`", "\x1b", "\x7f"]), max_size=6
).map("".join)
ESCAPED = st.lists(
    st.sampled_from([*"ab019xuUcnt\\'\"?eE `$({", "\\", "\\\\", "\\'", "$(cmd)"]), max_size=10
).map("".join)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(ESCAPED, min_size=20, max_size=20))
def test_ansi_c_strings_mean_what_bash_says(texts: list[str]) -> None:
    pairs = [(text, value) for text in texts if (value := ansi_c_value(text)) is not None]
    line = "".join(f"printf '%s\\0' $'{text}';" for text, _ in pairs)
    env = {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, check=True, env=env)
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == [value for _, value in pairs]


PIECE = st.one_of(
    TEXT.map(lambda text: ("literal", "'" + text.replace("'", "'\\''") + "'", text)),
    TEXT.map(lambda text: ("literal", "$'" + quote_ansi(text) + "'", text)),
    st.just(("variable", '"$VAR"', "v a;l")),
    st.sampled_from(["$(cmd)", '"$(cmd)"', "`cmd`", "<(cmd)", "$((1+$(cmd)))", '"${X:-$(cmd)}"']).map(
        lambda text: ("command", text, "")
    ),
)


def quote_ansi(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\x1b", "\\e")


FORMS = ("srun --comment=x{} python a.py", "FOO=x{} python a.py", "env FOO=x{} srun python a.py", "python a.py x{}",
         "srun --container-image=x{} python a.py", "accelerate launch a.py x{}", "deepspeed a.py x{}",
         "apptainer exec --env A=x{} i.sif python a.py", "export FOO=x{}\npython a.py")  # fmt: skip


@settings(deadline=None, max_examples=120)
@example("python a.py x{}", [("literal", "$'a$(cmd)\\n'", "a$(cmd)\n")])
@example("srun --comment=x{} python a.py", [("literal", r"$'\\'", "\\"), ("literal", r"';\'", ";\\")])
@example("export FOO=x{}\npython a.py", [("variable", '"$VAR"', "v a;l"), ("literal", "'\n'", "\n")])
@example("env FOO=x{} srun python a.py", [("literal", r"$'\\'", "\\"), ("literal", r"'\'", "\\")])
@given(st.sampled_from(FORMS), st.lists(PIECE, min_size=1, max_size=4))
def test_the_command_that_is_shown_runs_nothing(form: str, pieces: list[tuple[str, str, str]]) -> None:
    written = form.format("".join(source for _, source, _ in pieces))
    script = convert_script(HEAD + written)
    found = pasted(script)
    if all(kind != "command" for kind, _, _ in pieces) and not unknown(script):
        value = "x" + "".join(text for _, _, text in pieces)
        statement = written.removesuffix("\npython a.py")
        assert any(word.endswith(value) for word in found) or statement in found


@pytest.mark.parametrize(
    "text",
    [
        "a=xxxxxxxxxx\n" + "a=$a$a\n" * 40 + "python train.py $a",
        "a=xxxxxxxxxx\n" + "a+=$a\n" * 40 + "python train.py $a",
        "a=(x y)\n" + 'a=("${a[@]}" "${a[@]}")\n' * 40 + 'python train.py "${a[@]}"',
        "a=(x y)\n" + 'a+=("${a[@]}")\n' * 40 + 'python train.py "${a[@]}"',
        f"a={'x' * 50_000}\npython train.py {'$a' * 50_000}",
    ],
)
def test_values_that_grow_without_end_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="too long"):
        convert_script(HEAD + text)


def test_long_lines_and_many_lines_take_no_long_time() -> None:
    begin = time.process_time()
    convert_script(HEAD + "python a.py" + ' --x "$HOME"' * 8000)
    convert_script(HEAD + "srun python a.py\n" * 8000)
    assert time.process_time() - begin < 15


@pytest.mark.parametrize("text", [",".join(["0-100000"] * 2500), "0-100000", "5-1"])
def test_an_array_of_too_many_tasks_is_not_read(text: str) -> None:
    assert parse_array(text) is None


@pytest.mark.parametrize(
    "text",
    [
        'export API_TOKEN="$HOME-hunter2secret"\npython a.py',
        'HF_TOKEN="hunter2$X" srun python a.py',
        'env HF_TOKEN="hunter2$X" srun python a.py',
        "srun bash -c 'HF_TOKEN=hunter2$X python a.py'",
        'export WANDB_API_KEY="${HOME:+x}hunter2abc"\npython a.py',
        'API_KEY="hunter2$HOME"\npython a.py --key "$API_KEY"',
        'API_KEY="hunter2abc"\npython a.py --key "$API_KEY"',
        "export PW_PASSWORD=$'hunter2\\n'\npython a.py",
        "export PW_PASSWORD=$'x\\'hunter2 a\\n'\npython a.py",
        "export API_KEY=$(echo hunter2)\npython a.py",
        'export API_KEY="a b"hunter2\npython a.py',
    ],
)
def test_no_secret_is_shown(text: str) -> None:
    script = convert_script(HEAD + text)
    shown = [*pasted(script), *unknown(script), *(without_secrets(line) for line in text.splitlines())]
    shown += [one.words for one in script.lines] + [without_secrets(one.text) for one in script.lines]
    assert "hunter2" not in " ".join([*shown[: -len(script.lines)], *script.notes])
    assert "--secret" in " ".join(shown)


def test_an_export_of_a_name_that_a_shell_finds_is_a_set_up_command() -> None:
    assert "export ${FOO}" in " ".join(pasted(convert_script(HEAD + "FOO=BAR\nexport ${FOO}\npython a.py")))
    assert "export $FOO" in " ".join(pasted(convert_script(HEAD + "FOO=BAR\nexport $FOO\npython a.py")))


@pytest.mark.parametrize("quote", ['"', "'", "$'"])
def test_a_secret_of_several_lines_is_masked(quote: str) -> None:
    text = f"export API_KEY={quote}abc\nhunter2{quote[-1]}\npython a.py"
    assert without_secrets(text) == "export API_KEY=***\npython a.py"
