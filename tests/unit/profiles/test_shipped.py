"""The shipped profiles: composed of parts, complete, and without a variable that is for
debugging.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.job.profile_model import FabricSection, Profile
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import load_profile, profile_names
from hpcrun.profiles.variable_catalogue import load_catalogue
from tests.harness import REPO
from tests.unit.builders import plan, read_yaml, write

SHIPPED = shipped_folder("cluster_profiles")
CATALOGUE = load_catalogue()
CARDS = ["a100", "a100-40gb", "a40", "h100", "h200", "l40s", "v100"]
OTHERS = ["b200", "b300", "gb200", "gb300", "gh200", "mi300x", "mi325x", "mi355x"]
"""Cards with a part and no profile."""
FABRICS = ["efa", "ethernet", "infiniband-hdr", "infiniband-ndr", "roce"]
FILES = [path for path in sorted(SHIPPED.rglob("*.yaml")) if path != CATALOGUE.path]
# gb, gb/s, fp32, tf32, bf16, fp16, fp8, NVLink gb/s, PCIe, compute capability, W; dense rates
DATASHEETS = {
    "a100": (80, 2039, 19.5, 156, 312, 312, None, 600, 4, "8.0", 400),
    "a100-40gb": (40, 1555, 19.5, 156, 312, 312, None, 600, 4, "8.0", 400),
    "h100": (80, 3350, 67, 494.5, 989, 989, 1979, 900, 5, "9.0", 700),
    "h200": (141, 4800, 67, 494.5, 989, 989, 1979, 900, 5, "9.0", 700),
    "v100": (16, 900, 15.7, None, None, 125, None, 300, 3, "7.0", 300),
    "l40s": (48, 864, 91.6, 183, 362, 362, 733, 0, 4, "8.9", 350),
    "a40": (48, 696, 37.4, 74.8, 149.7, 149.7, None, 112.5, 4, "8.6", 300),
    "b200": (180, 8000, 80, 1125, 2250, 2250, 4500, 1800, 5, "10.0", 1000),
    "b300": (288, 8000, 80, 1125, 2250, 2250, 4500, 1800, 5, "10.3", 1000),
    "gb200": (186, 8000, 80, 1250, 2500, 2500, 5000, 1800, None, "10.0", 1200),
    "gb300": (None, None, 80, 1250, 2500, 2500, 5000, 1800, None, "10.3", 1400),
    "gh200": (96, 4000, 67, 494.5, 989, 989, 1979, 900, None, "9.0", None),
    "mi300x": (192, 5300, 163.4, 653.7, 1300, 1300, 2610, 896, 5, None, 750),
    "mi325x": (256, 6000, 163.4, 653.7, 1300, 1300, 2610, 896, 5, None, 1000),
    "mi355x": (288, 8000, 157.3, None, 2500, 2500, 5000, 1071, 5, None, 1400),
}


def load(name: str) -> Profile:
    return load_profile(name, [SHIPPED]).profile


def test_the_profiles_are_the_files_at_the_top() -> None:
    assert sorted(profile_names([SHIPPED])) == sorted([*CARDS, "cpu", "local"])
    assert sorted(path.stem for path in (SHIPPED / "gpu").iterdir()) == sorted([*CARDS, *OTHERS])
    assert sorted(path.stem for path in (SHIPPED / "fabric").iterdir()) == FABRICS


@pytest.mark.parametrize("name", [*CARDS, *OTHERS])
def test_a_card_is_what_its_maker_says(name: str) -> None:
    profile = (
        load(name)
        if name in CARDS
        else load_profile(str(SHIPPED / f"gpu/{name}.yaml"), [SHIPPED]).profile
    )
    card, rates = profile.card, profile.card.tflops
    said = (
        card.memory_gb,
        card.memory_bandwidth_gb_s,
        rates.fp32,
        rates.tf32,
        rates.bf16,
        rates.fp16,
        rates.fp8,
    )
    more = (card.nvlink_gb_s, card.pcie_generation, card.compute_capability, card.power_w)
    assert said + more == DATASHEETS[name]
    assert card.bf16 is (rates.bf16 is not None)


@pytest.mark.parametrize("name", CARDS)
def test_a_whole_node_leaves_memory_to_the_system(name: str) -> None:
    """A node with MemSpecLimit has less for jobs than its RealMemory, and refuses a job that wants
    all of it.
    """
    profile = load(name)
    memory_mb, cpus = profile.memory.per_node or 0, profile.cpu.per_node or 0
    assert (
        0.95 * memory_mb
        < (plan(profile, gpus=str(profile.gpu.per_node)).memory_mb or 0)
        < 0.97 * memory_mb
    )
    assert 0 < (profile.gpu.per_node or 0) * (profile.cpu.per_gpu or 0) <= cpus
    assert profile.description
    assert 0 < (profile.time.default or 0) <= (profile.time.max or 0)


def test_a_card_says_nothing_of_the_network_and_a_fabric_leaves_names_to_the_site() -> None:
    for name in (*CARDS, *OTHERS):
        assert set(read_yaml(SHIPPED / f"gpu/{name}.yaml").data) == {"gpu", "card"}
    for name in FABRICS:
        said = read_yaml(SHIPPED / f"fabric/{name}.yaml").data
        assert set(said) == {"fabric"}
        assert set(said["fabric"]) <= {"kind", "bandwidth_gbit_s"}


@pytest.mark.parametrize("name", [*CARDS, "cpu"])
def test_a_profile_is_made_of_parts_and_not_of_profiles(name: str) -> None:
    """A person's own a100.yaml hides the shipped one by name, and must not change the others."""
    bases = read_yaml(SHIPPED / f"{name}.yaml").data["extends"]
    assert all("/" in base for base in ([bases] if isinstance(bases, str) else bases))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SHIPPED).as_posix())
def test_no_shipped_file_sets_what_is_for_debugging_or_read_by_nothing(path: Path) -> None:
    env = read_yaml(path).data.get("env", {})
    assert all(CATALOGUE[name].kind in {"system", "torch", "process"} for name in env)
    for gpu in CARDS:
        assert CATALOGUE.check(env, gpu) == []
    assert load_profile(str(path), [SHIPPED]).profile.name == path.stem  # each loads by itself


@pytest.mark.parametrize("card", CARDS)
def test_every_card_goes_with_every_fabric(card: str, tmp_path: Path) -> None:
    for fabric in FABRICS:
        text = f"extends: [base/slurm, gpu/{card}, fabric/{fabric}]\ngpu: {{per_node: 4}}\n"
        path = write(tmp_path / f"{fabric}.yaml", text)
        profile = load_profile(str(path), [SHIPPED]).profile
        assert profile.card == load(card).card
        assert profile.fabric.kind == fabric.partition("-")[0]


@pytest.mark.parametrize("name", [*CARDS, *OTHERS])
def test_a_card_has_its_numbers_on_the_page_of_the_cards(name: str) -> None:
    rows = (REPO / "docs/cards.md").read_text().splitlines()
    (row,) = (line for line in rows if line.startswith(f"| `gpu/{name}` |"))
    memory, bandwidth, fp32, tf32, bf16, fp16, fp8, nvlink, _, capability, watts = DATASHEETS[name]
    numbers = (memory, bandwidth, fp32, tf32, bf16, fp16, fp8, nvlink, watts, capability)
    assert row.removesuffix(" |").split(" | ")[2:] == [
        "" if each is None else f"{each}" for each in numbers
    ]


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_a_section_and_what_is_set_is_named(name: str) -> None:
    common = (REPO / "docs/gpus.md").read_text()
    section = common.partition(f"\n## {name.removesuffix('-40gb').upper()}\n")[2]
    assert f"`{name}`" in section.partition("\n## ")[0]
    assert all(f"`{variable}`" in common for variable in load(name).env)


def test_a_part_resolves_in_every_folder(tmp_path: Path) -> None:
    write(tmp_path / "gpu/a100.yaml", "extends: gpu/a100\ncard: {power_w: 300}\n")
    write(tmp_path / "gpu/ours.yaml", "gpu: {type: ours}\n")
    write(tmp_path / "mine.yaml", "extends: [base/slurm, gpu/a100, gpu/ours]\n")
    profile = load_profile("mine", [tmp_path, SHIPPED]).profile
    assert profile.card.power_w == 300
    assert profile.card.memory_gb == 80
    assert profile.gpu.type == "ours"
    # the shipped profile takes a person's part too: its card is that person's card
    assert load_profile("a100", [tmp_path, SHIPPED]).profile.card.power_w == 300


def test_an_interface_is_written_as_each_library_spells_it(tmp_path: Path) -> None:
    text = (
        "extends: a100\nfabric: {interface: ib0, hcas: [mlx5_0, mlx5_1]}\nenv: "
        "{GLOO_SOCKET_IFNAME: ib1}\n"
    )
    write(tmp_path / "mine.yaml", text)
    env = dict(plan(load_profile("mine", [tmp_path, SHIPPED]).profile, gpus="4").env)
    assert env["NCCL_SOCKET_IFNAME"] == "=ib0"
    assert env["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert env["GLOO_SOCKET_IFNAME"] == "ib1", "what a person writes is not changed"
    for name in ("=ib0", "^docker", "ib0,ib1", "a b"):
        with pytest.raises(ValueError, match="interface"):
            FabricSection(interface=name)
