"""verl's trainer for supervised fine-tuning, on CPUs: two steps of a model of one layer that four
ranks on two nodes share.
"""

from __future__ import annotations

import re

import pytest

from tests.harness import Hpcrun
from tests.recipes.conftest import output

pytestmark = [pytest.mark.slurm, pytest.mark.recipes, pytest.mark.timeout(1800)]

JOB = ("-P", "a100", "--gpus", "4", "--nodes", "2", "--cpus", "4", "--mem", "8G", "--time", "20m")
# verl has platforms for CUDA, ROCm and NPU; its engine of FSDP is the one for CUDA, with gloo
PLATFORM = """
import os, types, torch, verl.utils.distributed
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry

os.environ.pop("ROCR_VISIBLE_DEVICES", None)

class Device(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        answers = {"mem_get_info": (0, 0), "get_device_name": "cpu"}
        return getattr(torch.cpu, name, None) or (lambda *_: answers.get(name, 0))

@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):
    device_name = vendor_name = "cpu"
    device_module = Device("cpu")
    def is_available(self): return True
    def current_device(self): return torch.device("cpu")
    def device_count(self): return 1
    def set_device(self, index): pass
    def synchronize(self, index=None): pass
    def manual_seed(self, seed): torch.manual_seed(seed)
    manual_seed_all = manual_seed
    def set_allocator_settings(self, settings): pass
    def empty_cache(self): pass
    def communication_backend_name(self): return "gloo"

def meet(timeout_second=0):
    torch.distributed.init_process_group("gloo")

verl.utils.distributed.initialize_global_process_group = meet
"""
PREPARE = """
import pandas, tokenizers, transformers
transformers.set_seed(0)
words = "<unk> <pad> <eos> user assistant what is one two plus ?".split()
numbers = {word: number for number, word in enumerate(words)}
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
tokens = dict(unk_token="<unk>", pad_token="<pad>", eos_token="<eos>")
fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
fast.chat_template = (
    "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
fast.save_pretrained("model")
size = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1)
heads = dict(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False)
tokens = dict(vocab_size=len(words), eos_token_id=2, pad_token_id=1)
config = transformers.Qwen2Config(**tokens, **size, **heads)
transformers.Qwen2ForCausalLM(config).save_pretrained("model")
question = {"role": "user", "content": "what is one plus one ?"}
answer = {"role": "assistant", "content": "two"}
pandas.DataFrame({"messages": [[question, answer]] * 64}).to_parquet("train.parquet")
"""
ON_CPUS = (
    *("--env", "VERL_USE_EXTERNAL_MODULES=verl_cpu", "--env", "VERL_PLATFORM=cpu"),
    *("--env", "VERL_ENGINE_DEVICE=cuda"),
)
TRAINER = (
    "verl.trainer.sft_trainer",
    *("data.train_files=train.parquet", "data.train_batch_size=8", "data.max_length=32"),
    *("data.micro_batch_size_per_gpu=2", "data.max_token_len_per_gpu=64", "data.num_workers=0"),
    *("model.path=model", "model.use_remove_padding=False"),
    *("+model.override_config.attn_implementation=eager", "engine.strategy=fsdp2"),
    *("trainer.nnodes=2", "trainer.n_gpus_per_node=2", "trainer.device=cpu"),
    *("trainer.logger=[console]", "trainer.total_training_steps=2", "optim.lr=0.01"),
    *("trainer.save_freq=2", "trainer.default_local_dir=saved"),
)


def test_four_ranks_on_two_nodes_share_a_model(person: Hpcrun) -> None:
    person.write("verl_cpu.py", PLATFORM)
    person.write("prepare.py", PREPARE)
    python = f"{person.environ['VIRTUAL_ENV']}/bin/python"
    person.run(python, "prepare.py", timeout=600)
    run = person.submit(*JOB, *ON_CPUS, "-m", "--", *TRAINER, check=True)
    ended = person.ended(run.name, 1000)
    assert ended["state"] == "COMPLETED", person("explain", run.name).stdout
    printed = "\n".join(output(person))
    losses = re.findall(r"step:(\d) .*train/loss:([\d.]+)", printed)
    assert [step for step, _ in losses] == ["1", "2"]
    assert float(losses[1][1]) < float(losses[0][1])
    shards = (person.folder / "saved/global_step_2").glob("model_*.pt")
    assert {shard.name for shard in shards} == {
        f"model_world_size_4_rank_{rank}.pt" for rank in range(4)
    }
