"""Random batch scripts: shell features, #SBATCH lines and launch lines as people write them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

SHEBANGS = """\
#!/bin/bash
#!/bin/bash
#!/bin/bash
#!/usr/bin/env bash
#!/bin/bash -l
#!/bin/bash -e
#! /bin/bash
#!/bin/bash -eu
#!/bin/sh
#!/usr/bin/bash -x""".splitlines()
DIRECTIVES = """\
-N2
-N 2
--nodes=2
--nodes 1
-n 2
--ntasks=1
--ntasks-per-node=2
--ntasks-per-node 1
-c4
--cpus-per-task=8
--gpus-per-node=4
--gres=gpu:2
--gres=gpu:a100:1
--gpus=2
-G 1
-t 10
-t 1:00:00
--time=1-00:00:00
--time 30
-p debug
--partition=debug
-J name
--job-name="a b"
--job-name=é
--job-name 'it is'
-J a#b
--job-name=a/b
-J "it's"
--comment="say \\"hi\\" # no"
--comment=$HOME
--comment=
--mail-user=
--account=
-o log-%j.txt
--output=logs/%x-%A.out
-e err-%j.txt
--mem=8G
--mem-per-cpu 2G
--array=0-4:2
-a 1-3%2
--array=5
--array=1,3,5-7
-D sub
--chdir=sub
--chdir="a b"
--export=ALL
--export=ALL,FROM_LINE=1
--export=FROM_LINE="x y",ALL
--export=NONE
--export=NNODES
--requeue
--no-requeue
--open-mode=append
--open-mode=truncate
--exclusive
--exclusive=user
--mail-type=END
--mail-type=END,FAIL --mail-type=BEGIN
--mail-user=me@x.y # to me
-C "a100&nvlink"
--signal=B:USR1@60
--signal=TERM@30
--nice=100
--nice
--hint=nomultithread
--wait
-v
--qos high
--hold
--reservation=r1
--begin=now+1hour
--dependency=afterok:1
--threads-per-core=1
-x node7
--wckey="a key"
--parsable
-N1 --ntasks-per-node 1 -c 2 # all at once""".splitlines()
SET_UP = """\
set -e
set -u
set -o pipefail
set -euo pipefail
set -x
set -E
set -eE
set -a
set -f
set +e
shopt -s nullglob extglob
shopt -s expand_aliases; alias ll='echo alias'¶ll
trap 'echo "bye $?"' EXIT
trap 'echo "ERR at $LINENO: $BASH_COMMAND gave $?"' ERR
trap 'echo "ERR at $LINENO"; exit 9' ERR
trap 'echo TERM; exit 8' TERM
trap 'echo TERM; kill $(jobs -p) 2>/dev/null' TERM
trap '' INT
trap '' USR1
trap - ERR
trap 'echo return' RETURN
export OMP_NUM_THREADS=4
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export NOTE='a  "b" $c' OTHER="tab	é"
export LINES_OF=$'one\\ntwo\\\\'
export NNODES=${NNODES:-1} MASTER_PORT=${MASTER_PORT:-29500}
export RANK=3 WORLD_SIZE=9
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 1000))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)¶export MASTER_ADDR
export MASTER_ADDR=`scontrol show hostnames $SLURM_NODELIST | head -1` # the first
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )¶echo "head ${nodes[0]} of ${#nodes[@]}"
declare -A table=([k]="v w")¶echo "${table[k]}"
readonly FIXED=1
unset SLURM_CPUS_PER_TASK
unset NNODES MASTER_PORT
unset ${!SLURM_MEM*}
unset SLURM_NTASKS SLURM_NPROCS
export SLURM_EXPORT_ENV=ALL
export SLURM_KILL_BAD_EXIT=1
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export LC_ALL=C
export LANG=en_US.UTF-8
export PYTHONPATH="$PWD:${PYTHONPATH:-}"
export PYTHONPATH=
export PATH=$PWD/bin:$PATH
export TORCH_NCCL_TRACE_BUFFER_SIZE=5 TORCH_FR_BUFFER_SIZE=6
export WANDB_TAGS=mine WANDB_NAME="$SLURM_JOB_NAME"
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
export BASH_ENV=env.sh
IFS=,
cd sub
cd "$SLURM_SUBMIT_DIR"
cd "a b" && pwd
cd nowhere
pushd sub >/dev/null
mkdir -p "out dir" && cd "out dir"
cd "$(dirname "$0")"
here="$( cd "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"¶echo "$here"
umask 077
umask 002
ulimit -n 256
ulimit -c 0
ulimit -s 4096
module purge
module load cuda/12.4 nccl
module load "a b" || echo "no module"
ml cuda
source venv/bin/activate
. ./env.sh
source env.sh; from_env_sh
conda activate base
eval "$(conda shell.bash hook)"
log() { echo "[log] $*"; }¶log "start $#"
check() { grep -q nothing env.sh; true; }¶check
check() { false; echo checked; }¶check
run_it() { local x=1; return $x; }¶run_it || echo "gave $?"
helper() { echo helper; }¶export -f helper¶bash -c helper
cat > config.yaml <<EOF¶lr: ${LR:-1}¶job: $SLURM_JOB_NAME¶EOF
cat > hosts.txt <<'EOF'¶$SLURM_NODELIST `x`¶EOF
python - <<'EOF'¶print("$HOME")¶EOF
python3 -c "import sys; print(sys.argv)" x
python prepare.py --all
probe "$-" "$(trap -p)" "$#" "$@"
probe "$-" "$SHLVL" "$PWD" "$OLDPWD"
probe "$0"
probe "${FUNCNAME[*]}" >/dev/null &¶wait
for i in 1 2; do probe loop $i; done
while read -r host; do echo "host $host"; done < <(scontrol show hostnames)
while read line || [ -n "$line" ]; do echo "read $line"; done < input.txt
case $SLURM_NNODES in 1) echo one;; *) echo many;; esac
if [ "${SLURM_NNODES}" -gt 1 ]; then echo many; fi
if command -v nvidia-smi >/dev/null; then nvidia-smi -L; fi
false
! true
ls /nonexistent
no-such-command --x
(exit 3)
grep -q nothing env.sh || true
[ -f missing ] && echo there
test -d nope || echo none
x=$(false; echo ok)¶echo "x=$x $?"
((count = SLURM_NNODES * 2))
((zero = 0))
let n=1
: <<'COMMENT'¶srun python old.py¶COMMENT
echo "#SBATCH --nodes=9"
#SBATCH --mem=1G # late
# a comment with a ' quote and srun python old.py
echo one \\¶  two # three
echo `# a comment` inside
echo "$SLURM_JOB_NAME|$SLURM_NNODES|${SLURM_NTASKS:-}|${SLURM_ARRAY_TASK_ID:-}|$SLURM_SUBMIT_DIR"
env | grep '^SLURM_' | sort
echo "${NNODES:-no} ${MASTER_PORT:-no} ${RANK:-no} ${SLURM_X:-no} ${LC_ALL:-no}"
printf '%s\\n' "$@"
set -- a "b c" ''
shift
sleep 0 & wait
probe beside & pid=$!¶wait $pid
(sleep 0; probe later) &¶wait
exec > >(tee script.log) 2>&1
exec > out.log 2>&1
exec 2>&1
exec 3>three.txt; echo three >&3
exec < input.txt
srun hostname
srun --ntasks=1 mkdir -p made
srun -N1 -n1 probe in step
kill -0 $$
kill -TERM $$
echo 日本 'é' "ü"
printf '\\377\\n'
date() { echo now; }¶date
type module >/dev/null 2>&1 && echo "module is there"
lr=0.1 args=(--lr $lr --name "a  b")
ARGS="--lr 1 --wd 2"
SRUN_ARGS="--unbuffered --wait=60"
LAUNCHER="torchrun --nproc_per_node=1"
LAUNCH='srun -l'
hash -r
set -m
eval 'echo "eval $#"'
true && false || echo fallback
{ echo grouped; } > group.txt
exit 4
return 3
wait
renice -n 5 $$ >/dev/null
echo $(( $(nproc) + 1 ))""".splitlines()
AFTER = """\
echo "status $?"
status=$?¶echo "status $status"¶exit $status
exit 0
exit 3
[ $? -eq 0 ] || exit 6
python evaluate.py --best
probe after "$-" "$PWD" "${MASTER_ADDR:-}" "$(umask)"
rm -f config.yaml
false
echo done
wait
cp input.txt copied.txt && echo copied
kill -TERM $$
trap - EXIT
exec probe last
unset WANDB_TAGS; env | grep -c ^WANDB_TAGS
(exit 5)
if [ $? -ne 0 ]; then echo failed; fi
cat train.log 2>/dev/null | wc -l
ls | sort | head -30
ulimit -n; umask; pwd""".splitlines()
SRUN = """\
-N "$SLURM_NNODES"
-n2
--ntasks=2
--ntasks 1
--nodes=1 --ntasks=1
--ntasks-per-node=1
-l
-u
--unbuffered
--label
-K1
--kill-on-bad-exit=1
--kill-on-bad-exit=0
--export=ALL
--export=ALL,OF_SRUN=1
--cpu-bind=none
--mpi=pmix
--output=srun-%j-%t.log
-o srun.log
-e srun.err
--jobid $SLURM_JOB_ID
--wait 60
--wait=0
-c 2
--cpus-per-task=$SLURM_CPUS_PER_TASK
--gpus-per-task=1
--exclusive
--exact
--overlap
--chdir sub
-D "$PWD/sub"
--job-name "a b"
-J step
--time=5
--multi-prog
$SRUN_ARGS
"${srun_args[@]}"
--no-such-option=1""".splitlines()
WRAPPERS = """\
OF_LINE=1
A="b c" B=$HOME
env OF_ENV=1
time
timeout 60
timeout -s KILL 1m
nohup
command
nice -n 3
stdbuf -oL
exec
!
taskset -c 0
numactl --interleave=all
ionice -c 3""".splitlines()
STARTERS = """\
torchrun --nproc_per_node=2
torchrun --standalone --nproc-per-node 1
torchrun --nnodes=$SLURM_NNODES --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:29500"
torchrun --nnodes 1:2 --nproc-per-node=gpu --max-restarts=3
torchrun --no-python --nproc_per_node=1 python
torchrun -m
python -m torch.distributed.run --nproc_per_node=1
python3 -u -m torch.distributed.run --nnodes=1
python -m torch.distributed.launch --use_env --nproc_per_node=1
accelerate launch --num_processes 2 --mixed_precision=bf16
deepspeed --num_gpus=1
mpirun -np 2 python
mpiexec -n 2 python -u
python
python
python3 -u
python -u -W ignore
python -m
./
bash run.sh
uv run
apptainer exec --nv image.sif python
$LAUNCHER
bash -c 'python "$@"' x""".splitlines()
WORDS = """\
--lr 1e-3
--name "a  b"
"$@"
"${args[@]}"
$ARGS
--note 'it'"'"'s $HOME'
--tab $'a\\tb'
--files *.txt
--json '{"a": [1, 2], "b": "$x"}'
--text "one¶two"
--é ü
--n $((1 + 1))
--sub "$(echo x y)"
--back `echo z`
--empty ""
--seed ${SLURM_ARRAY_TASK_ID:-0}
--out "out dir/$SLURM_JOB_ID"
--brace {a,b}
--tilde ~/x
--hash a#b
--escaped a\\ b \\$HOME \\"
--set=${UNSET-default}
--job "$SLURM_JOB_NAME" --nodes $SLURM_NNODES
--exit 3
--exit 1
--exit 0
-- --more
:: :::""".splitlines()
SHAPES = """\
§
§
§
§
§
§ | tee train.log
§ 2>&1 | tee -a "train log"
§ > out.txt 2> err.txt
§ &> all.txt
§ 2>&1
§ >> train.log
§ < input.txt
§ <<EOF¶line $SLURM_JOB_ID¶EOF
§ <<< "here $HOME"
cat input.txt | §
§ && echo ok || echo "failed $?"
§ || exit 7
§ || echo "failed $?"
§ ; status=$?¶echo "status $status"; exit $status
if §; then echo yes; else echo "no $?"; fi
if [ "$SLURM_NNODES" -gt 5 ]; then¶  echo big¶else¶  §¶fi
if ! §; then¶  echo "it failed"¶  exit 12¶fi
main() {¶  local x="$1"¶  §¶}¶main "$@"
(cd sub && §)
( § )
{ §; } 2>&1 | tee all.log
§ &¶wait
§ &¶pid=$!¶wait $pid¶echo "waited $?"
§ & probe beside; wait
for i in 1 2; do¶  §¶done
for seed in 1; do §; done
result=$( § )¶echo "$result" | wc -l
case $SLURM_NNODES in¶  1) § ;;¶  *) § ;;¶esac
while ! §; do break; done
set +e¶§¶echo "status $?"¶set -e
§¶§
set -x¶§¶set +x
§ # and a comment
  §   # at the end
§ |& cat
exec §
§;probe next
time §
(§) > sub.txt
§ | grep -v nothing | sort > sorted.txt
trap 'echo ended' EXIT¶§
§ 3>&1
§ 2>/dev/null
( umask 027; ulimit -n 128; § )
until §; do exit 9; done
eval "python train.py --evaluated"
cmd="python train.py --lr 1"¶echo $cmd¶$cmd
cmd=(srun python train.py "a b")¶"${cmd[@]}"
xargs -n1 srun python train.py < input.txt""".splitlines()
ENVIRONMENT = (
    ("NNODES", "4"),
    ("NPROC_PER_NODE", "8"),
    ("MASTER_PORT", "31000"),
    ("MASTER_ADDR", "there"),
    ("RANK", "1"),
    ("LOCAL_RANK", "0"),
    ("WORLD_SIZE", "2"),
    ("SLURM_X", "1"),
    ("SLURM_JWT", "jwt"),
    ("SRUN_X", "a b"),
    ("LC_ALL", "C"),
    ("OMP_NUM_THREADS", "7"),
    ("PYTHONPATH", "/nowhere"),
    ("LR", "0.1  # $x"),
    ("NOTE", "one\ntwo\\"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT", "0"),
    ("CUDA_VISIBLE_DEVICES", "3"),
    ("WANDB_TAGS", "a,b"),
    ("PWD_OF", "é"),
    ("BASH_FUNC_module%%", '() {  echo "module $*"\n}'),
    ("BASH_FUNC_conda%%", '() {  echo "conda $*";\n export OF_CONDA=1\n}'),
    ("a.b", "1"),
    ("SBATCH_QOS", "low"),
    ("SBATCH_PARTITION", "night"),
    ("SLURM_HINT", "multithread"),
    ("OMPI_COMM_WORLD_RANK", "0"),
    ("KMP_AFFINITY", ""),
)
ARGUMENTS = ("7", "a  b", "", "--lr", "$HOME", "*.txt", "é", "-x", "it's", "--", "x\ny")


@dataclass(frozen=True, slots=True)
class RandomScript:
    """A batch script in pieces, any of which may be left out."""

    shebang: str
    directives: tuple[str, ...]
    pieces: tuple[str, ...]
    arguments: tuple[str, ...]
    env: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The script."""
        lines = [self.shebang, *(f"#SBATCH {line}" for line in self.directives), *self.pieces]
        return "\n".join(lines).replace("¶", "\n") + "\n"


def random_script(seed: int, number: int) -> RandomScript:
    """Return the script of a number, which the seed decides."""
    chance = random.Random(f"{seed}/{number}")
    set_up = chance.choices(SET_UP, k=chance.choice((0, 1, 2, 3, 4, 6)))
    after = chance.choices(AFTER, k=chance.choice((0, 0, 1, 2)))
    shape = chance.choice(SHAPES).replace("§", _launch(chance))
    shebang = chance.choice(SHEBANGS)
    if shebang == "#!/bin/sh":  # dash reads &> as & and >: the script would not wait for its launch
        shape = shape.replace("&> all.txt", "> all.txt 2>&1")
    return RandomScript(
        shebang=shebang,
        directives=tuple(chance.sample(DIRECTIVES, chance.choice((1, 1, 2, 3, 4)))),
        pieces=(*set_up, shape, *after),
        arguments=tuple(chance.choices(ARGUMENTS, k=chance.choice((0, 0, 1, 3)))),
        env=tuple(chance.sample(ENVIRONMENT, chance.choice((0, 0, 1, 2, 4)))),
    )


def _launch(chance: random.Random) -> str:
    words = []
    if chance.random() < 0.3:
        words.append(chance.choice(WRAPPERS))
    if chance.random() < 0.6:
        words += ["srun", *chance.sample(SRUN, chance.choice((0, 1, 2, 3)))]
        if chance.random() < 0.1:
            words.append(chance.choice(WRAPPERS[2:]))
    starter = chance.choice(STARTERS)
    program = chance.choice(("train.py", "train.py", '"my train.py"'))
    if starter.endswith("-m"):
        program = "pkg.train"
    if starter == "./":
        program = "./train.py"
    else:
        words.append(starter)
    words += [program, *chance.sample(WORDS, chance.choice((0, 1, 2, 3)))]
    return chance.choice((" ", " ", " ", " \\\n    ", "  ")).join(words)


def smaller(script: RandomScript) -> list[RandomScript]:
    """Return the script without each of its pieces, lines, arguments and variables in turn."""
    fewer = []
    for name in ("pieces", "directives", "env", "arguments"):
        parts = getattr(script, name)
        for at in range(len(parts)):
            fewer.append(replace(script, **{name: parts[:at] + parts[at + 1 :]}))
    if script.shebang != SHEBANGS[0]:
        fewer.append(replace(script, shebang=SHEBANGS[0]))
    return fewer
