"""The catalogue of variables as it is shipped, and judging the variables of a job with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles.variable_catalogue import KINDS, PREFIXES, Finding, Values, load_catalogue
from tests.unit.builders import read_yaml, write

CATALOGUE = load_catalogue()
# The group of NCCL's guide that costs speed or hangs when left on.
NCCL_DEBUGGING = """
    NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_BUFFSIZE NCCL_IB_DISABLE
    NCCL_IB_QPS_PER_CONNECTION NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_ALGO NCCL_PROTO
    NCCL_NVLS_ENABLE NCCL_IB_PCI_RELAXED_ORDERING NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_CHECK_MODE
""".split()


def test_reading_piece_by_piece_finds_what_the_whole_file_says() -> None:
    whole = read_yaml(CATALOGUE.path).data
    assert set(CATALOGUE) | {"others"} == set(whole)
    assert CATALOGUE.others == set(whole["others"])
    for name, variable in CATALOGUE.items():
        assert variable.meaning == whole[name]["meaning"]
        assert variable.kind == whole[name]["kind"]


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_variable_is_complete(name: str) -> None:
    variable = CATALOGUE[name]
    assert name.startswith((*PREFIXES, "MASTER_"))
    assert variable.source
    assert variable.renamed_to is not None or variable.kind != "renamed"
    assert variable.renamed_to is None or variable.kind in {"renamed", "deprecated"}
    assert (variable.kind == "deprecated") == (variable.since is not None)
    assert variable.renamed_to is None or variable.renamed_to in CATALOGUE
    if variable.kind in {"system", "torch", "process", "efa"}:
        assert variable.default
        assert variable.set_when or variable.hpcrun or variable.trap
    if variable.kind == "debugging":
        assert variable.set_when, "the symptom that it is for"
    if variable.kind in {"debugging", "deprecated", "unread"}:
        assert variable.instead
    for off in variable.off:
        assert variable.values.allow(off)
    for pattern in (variable.values.pattern, *(one.values for one in variable.harmful)):
        assert pattern is None or re.compile(pattern)


def test_every_kind_has_a_variable_and_no_name_stands_twice() -> None:
    assert {variable.kind for variable in CATALOGUE.values()} == set(KINDS)
    assert not CATALOGUE.others & set(CATALOGUE)
    assert {name for name, one in CATALOGUE.items() if one.kind == "debugging"} >= set(
        NCCL_DEBUGGING
    )


def test_a_broken_catalogue_says_where(tmp_path: Path) -> None:
    for text, says in (
        ("NCCL_X:\n  kind: sometimes\n  meaning: x\n  source: y\n", "NCCL_X: "),
        ("NCCL_X:\n  kind: torch\n  means: x\n", "means"),
        ("NCCL_X:\n  kind: [torch\n", "variables.yaml"),
    ):
        with pytest.raises(ProfileError, match=re.escape(says)):
            load_catalogue(write(tmp_path / "variables.yaml", text))["NCCL_X"]
    with pytest.raises(ProfileError, match="cannot be read"):
        load_catalogue(tmp_path / "none.yaml")


def check(gpu: str = "", **env: str) -> list[Finding]:
    return CATALOGUE.check(env, gpu)


@pytest.mark.parametrize(
    ("name", "value", "gpu", "says", "instead"),
    [
        ("NCCL_TIMEOUT", "7200", "", "no program reads", "init_process_group(timeout="),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "torchrun sets"),
        ("NCCL_BLOCKING_WAIT", "1", "", "TORCH_NCCL_BLOCKING_WAIT", "leave it"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "", "PYTORCH_ALLOC_CONF", ""),
        ("NCCL_IB_RETRY_CNT", "13", "", "it takes 0 to 7", "NCCL_IB_TIMEOUT"),
        ("NCCL_P2P_LEVEL", "NVL", "l40s", "turns direct transfers off", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "NVIDIA L40S 48 GB", "turns direct transfers off", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "v100", "two-hop paths", "leave it"),
        ("NCCL_P2P_LEVEL", "LOC", "h200", "takes NVLink away", "leave it"),
        ("NCCL_IB_GDR_LEVEL", "5", "", "NCCL_NET_GDR_LEVEL", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "a40", "for debugging", "leave it"),
        ("NCCL_P2P_DISABLE", "1", "h100", "takes NVLink away", "ACS"),
        ("NCCL_P2P_DISABLE", "1", "NVIDIA GB200 186 GB", "takes NVLink away", "ACS"),
        ("NCCL_P2P_DISABLE", "1", "l40s", "for debugging (GPUs on PCIe", "ACS"),
        ("NCCL_NET_GDR_LEVEL", "5", "a100", "for debugging", "leave it"),
        ("NCCL_ALGO", "Ring", "", "for debugging", "leave it"),
        ("CUDA_LAUNCH_BLOCKING", "1", "", "for debugging", "a short run"),
        ("NCCL_CHECK_MODE", "debug_global", "", "for debugging", "a short run"),
        (
            "NCCL_MIN_NCHANNELS",
            "32",
            "h100",
            "deprecated since NCCL 2.17 in favour of NCCL_MIN_CTAS",
            "leave it",
        ),
        (
            "NCCL_CHECK_POINTERS",
            "1",
            "",
            "since NCCL 2.29.7 in favour of NCCL_CHECK_MODE",
            "=DEBUG_LOCAL",
        ),
        ("NCCL_LAUNCH_MODE", "GROUP", "", "deprecated since NCCL 2.9", "leave it"),
        ("NCCL_IB_HCA", "mlx5_1", "", "mlx5_1 selects mlx5_10", "fabric.hcas"),
        ("NCCL_IB_HCA", "^mlx5_0,mlx5_2:1", "", "is a prefix", "fabric.hcas"),
        ("NCCL_DEBGU", "INFO", "", "did you mean NCCL_DEBUG?", ""),
        ("TORCH_NCCL_DUMP_ON_TIMEOUTS", "1", "", "did you mean TORCH_NCCL_DUMP_ON_TIMEOUT?", ""),
    ],
)
def test_what_is_wrong_is_said_with_what_works(
    name: str, value: str, gpu: str, says: str, instead: str
) -> None:
    (finding,) = check(gpu, **{name: value})
    assert finding.name == name
    assert finding.value == value
    assert says in finding.problem
    assert instead in (finding.instead or "")
    assert finding.text().startswith(f"{name}={value}: ")


@pytest.mark.parametrize(
    "assignment",
    """
    NCCL_IB_RETRY_CNT=13 NCCL_IB_RETRY_CNT=-1 NCCL_IB_RETRY_CNT=seven NCCL_IB_TIMEOUT=-1
    NCCL_DEBUG=WARNING NCCL_CROSS_NIC=3 NCCL_SOCKET_FAMILY=ipv4 NCCL_P2P_LEVEL=NVLINK
    NCCL_IB_QPS_PER_CONNECTION=0 NCCL_MIN_CTAS=0 NCCL_CHECK_MODE=1 NCCL_LAUNCH_MODE=SERIAL
    NCCL_SOCKET_MAGIC=$SLURM_JOB_ID GLOO_SOCKET_IFNAME==ib0 GLOO_SOCKET_IFNAME=^docker
    CUDA_DEVICE_ORDER=PCI CUDA_DEVICE_MAX_CONNECTIONS=64 OMP_NUM_THREADS=0 OMP_NUM_THREADS=many
    MASTER_PORT=65536
    """.split(),
)
def test_a_value_that_cannot_be_is_impossible(assignment: str) -> None:
    (finding,) = check(**dict([assignment.split("=", 1)]))
    assert finding.impossible


@pytest.mark.parametrize(
    "assignment",
    """
    NCCL_SOCKET_IFNAME==eth0 NCCL_SOCKET_IFNAME===eth0 NCCL_SOCKET_IFNAME=^docker,lo
    NCCL_SOCKET_IFNAME=ib,eth NCCL_IB_HCA=^=mlx5_bond_0 NCCL_IB_HCA==mlx5_0:1,mlx5_1:1
    NCCL_IB_HCA=mlx5 NCCL_IB_HCA=mlx5_0 NCCL_IB_HCA=mlx5_10,mlx5_11 NCCL_SOCKET_MAGIC=0x2a
    NCCL_CHECK_POINTERS=0 NCCL_CHECK_MODE=default NCCL_LAUNCH_MODE=parallel
    GLOO_SOCKET_IFNAME=ib0,ib1 NCCL_DEBUG=info NCCL_DEBUG=ATTN NCCL_IB_TIMEOUT=22
    NCCL_IB_TIMEOUT=0x16 NCCL_IB_GID_INDEX=-1 NCCL_NVLS_ENABLE=2 NCCL_IB_DISABLE=0
    OMP_NUM_THREADS=8,2 NCCL_ALGO= NCCL_MIN_NRINGS=4 NCCL_IB_MERGE_NICS=0 NCCL_A_PLUGIN_OF_OURS=1
    OMP_PROC_BIND=close CUDA_HOME=/opt/cuda MY_NCCL_DEBGU=1 HF_HOME=/data
    """.split(),
)
def test_what_is_right_or_unknown_is_left_alone(assignment: str) -> None:
    assert check("h100", **dict([assignment.split("=", 1)])) == []


def test_only_what_is_impossible_is_said_to_be() -> None:
    found = check(
        "l40s", NCCL_TIMEOUT="1", NCCL_P2P_LEVEL="NVL", NCCL_DEBGU="INFO", NCCL_ALGO="Ring"
    )
    assert [finding.impossible for finding in found] == [False] * 4
    # no known name is another one misspelt
    assert CATALOGUE.check(dict.fromkeys(CATALOGUE.others, "x")) == []


def test_the_values_allowed_are_said_in_words() -> None:
    allowed = (Values(), Values(one_of=("A", "B")), Values(range=(0, 7)), Values(range=(1, None)))
    assert [values.in_words() for values in allowed] == ["", "A, B", "0 to 7", "1 or more"]
