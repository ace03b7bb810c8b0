"""Judging the variables of a job: what is found, what is left alone, and what works instead."""

from __future__ import annotations

import pytest

from hpcrun.profiles.variable_catalogue import Finding, Values, check_variables, load_catalogue

CATALOGUE = load_catalogue()


def check(gpu: str = "", **env: str) -> list[Finding]:
    return check_variables(env, CATALOGUE, others=CATALOGUE.others, gpu=gpu)


@pytest.mark.parametrize(
    ("name", "value", "gpu", "says", "instead"),
    [
        ("NCCL_TIMEOUT", "7200", "", "no program reads", "init_process_group(timeout="),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "torchrun sets"),
        ("NCCL_BLOCKING_WAIT", "1", "", "TORCH_NCCL_BLOCKING_WAIT", "leave it"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "", "PYTORCH_ALLOC_CONF", ""),
        ("NCCL_IB_RETRY_CNT", "13", "", "it takes 0 to 7", "NCCL_IB_TIMEOUT"),
        ("NCCL_P2P_LEVEL", "NVL", "l40s", "turns direct transfers off", "leave it"),
        ("NCCL_P2P_LEVEL", "nvl", "nvidia_l40s", "turns direct transfers off", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "NVIDIA L40S 48 GB", "turns direct transfers off", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "v100", "two-hop paths", "leave it"),
        ("NCCL_P2P_LEVEL", "LOC", "h200", "takes NVLink away", "leave it"),
        ("NCCL_IB_CUDA_SUPPORT", "1", "", "no program reads", "leave it"),
        ("NCCL_IB_GDR_LEVEL", "5", "", "NCCL_NET_GDR_LEVEL", "leave it"),
        ("NCCL_P2P_LEVEL", "NVL", "a40", "for debugging", "leave it"),
        ("NCCL_P2P_DISABLE", "1", "h100", "takes NVLink away", "ACS"),
        ("NCCL_P2P_DISABLE", "1", "NVIDIA GB200 186 GB", "takes NVLink away", "ACS"),
        ("NCCL_P2P_DISABLE", "1", "l40s", "for debugging (GPUs on PCIe", "ACS"),
        ("NCCL_NET_GDR_LEVEL", "5", "a100", "for debugging", "leave it"),
        ("NCCL_IB_DISABLE", "1", "", "for debugging", "TCP by itself"),
        ("NCCL_ALGO", "Ring", "", "for debugging", "leave it"),
        ("CUDA_LAUNCH_BLOCKING", "1", "", "for debugging", "a short run"),
        ("NCCL_MIN_CTAS", "4", "", "for debugging", "leave it"),
        ("NCCL_CHECK_MODE", "debug_global", "", "for debugging", "a short run"),
        ("NCCL_MIN_NCHANNELS", "32", "h100", "deprecated since NCCL 2.17 in favour of NCCL_MIN_CTAS", "leave it"),
        ("NCCL_MAX_NCHANNELS", "8", "", "deprecated since NCCL 2.17 in favour of NCCL_MAX_CTAS", "leave it"),
        ("NCCL_CHECK_POINTERS", "1", "", "since NCCL 2.29.7 in favour of NCCL_CHECK_MODE", "=DEBUG_LOCAL"),
        ("NCCL_LAUNCH_MODE", "GROUP", "", "deprecated since NCCL 2.9", "leave it"),
        ("NCCL_IB_HCA", "mlx5_1", "", "mlx5_1 selects mlx5_10", "fabric.hcas"),
        ("NCCL_IB_HCA", "^mlx5_0,mlx5_2:1", "", "is a prefix", "fabric.hcas"),
        ("NCCL_IB_HCA", "mlx5_ib7", "h100", "is a prefix", "fabric.hcas"),
        ("NCCL_DEBGU", "INFO", "", "did you mean NCCL_DEBUG?", ""),
        ("NCCL_SOCKET_IFNAM", "eth0", "", "did you mean NCCL_SOCKET_IFNAME?", ""),
        ("GLOO_SOCKET_IFNAMES", "eth0", "", "did you mean GLOO_SOCKET_IFNAME?", ""),
        ("TORCH_NCCL_DUMP_ON_TIMEOUTS", "1", "", "did you mean TORCH_NCCL_DUMP_ON_TIMEOUT?", ""),
    ],
)
def test_what_is_wrong_is_said_with_what_works(name: str, value: str, gpu: str, says: str, instead: str) -> None:
    (finding,) = check(gpu, **{name: value})
    assert (finding.name, finding.value) == (name, value)
    assert says in finding.problem
    assert instead in (finding.instead or "")
    assert finding.text.startswith(f"{name}={value}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_RETRY_CNT", "13"),
        ("NCCL_IB_RETRY_CNT", "-1"),
        ("NCCL_IB_RETRY_CNT", "seven"),
        ("NCCL_IB_TIMEOUT", "-1"),
        ("NCCL_DEBUG", "WARNING"),
        ("NCCL_CROSS_NIC", "3"),
        ("NCCL_SOCKET_FAMILY", "ipv4"),
        ("NCCL_P2P_LEVEL", "NVLINK"),
        ("NCCL_IB_QPS_PER_CONNECTION", "0"),
        ("NCCL_MIN_CTAS", "0"),
        ("NCCL_CHECK_MODE", "1"),
        ("NCCL_LAUNCH_MODE", "SERIAL"),
        ("NCCL_SOCKET_MAGIC", "$SLURM_JOB_ID"),
        ("GLOO_SOCKET_IFNAME", "=ib0"),
        ("GLOO_SOCKET_IFNAME", "^docker"),
        ("CUDA_DEVICE_ORDER", "PCI"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "64"),
        ("OMP_NUM_THREADS", "0"),
        ("OMP_NUM_THREADS", "many"),
        ("MASTER_PORT", "65536"),
    ],
)
def test_a_value_that_cannot_be_is_impossible(name: str, value: str) -> None:
    (finding,) = check(**{name: value})
    assert finding.impossible


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("NCCL_SOCKET_IFNAME", "==eth0"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ("NCCL_SOCKET_IFNAME", "ib,eth"),
        ("NCCL_IB_HCA", "^=mlx5_bond_0"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("NCCL_IB_HCA", "mlx5"),
        ("NCCL_IB_HCA", "mlx5_0"),
        ("NCCL_IB_HCA", "mlx5_10,mlx5_11"),
        ("NCCL_SOCKET_MAGIC", "0x2a"),
        ("NCCL_CHECK_POINTERS", "0"),
        ("NCCL_CHECK_MODE", "default"),
        ("NCCL_LAUNCH_MODE", "parallel"),
        ("GLOO_SOCKET_IFNAME", "ib0,ib1"),
        ("NCCL_DEBUG", "info"),
        ("NCCL_DEBUG", "ATTN"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_IB_TIMEOUT", "0x16"),
        ("NCCL_IB_GID_INDEX", "-1"),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_IB_DISABLE", "0"),
        ("OMP_NUM_THREADS", "8,2"),
        ("NCCL_ALGO", ""),
        ("NCCL_MIN_NRINGS", "4"),
        ("NCCL_IB_MERGE_NICS", "0"),
        ("NCCL_A_PLUGIN_OF_OURS", "1"),
        ("OMP_PROC_BIND", "close"),
        ("CUDA_HOME", "/opt/cuda"),
        ("MY_NCCL_DEBGU", "1"),
        ("HF_HOME", "/data"),
    ],
)
def test_what_is_right_or_unknown_is_left_alone(name: str, value: str) -> None:
    assert check("h100", **{name: value}) == []


def test_only_what_is_impossible_is_said_to_be() -> None:
    found = check("l40s", NCCL_TIMEOUT="1", NCCL_P2P_LEVEL="NVL", NCCL_DEBGU="INFO", NCCL_ALGO="Ring")
    assert [finding.impossible for finding in found] == [False] * 4


def test_no_name_that_is_known_is_taken_for_another_misspelt() -> None:
    env = dict.fromkeys(CATALOGUE.others, "x")
    assert check_variables(env, CATALOGUE, others=CATALOGUE.others) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (Values(), ""),
        (Values(one_of=("A", "B")), "A, B"),
        (Values(least=0, most=7), "0 to 7"),
        (Values(least=1), "1 or more"),
        (Values(pattern=".*"), ""),
    ],
)
def test_the_values_allowed_are_said_in_words(values: Values, words: str) -> None:
    assert values.in_words() == words
