import faulthandler, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

faulthandler.register(signal.SIGRTMIN + 7, file=open(f"fh-{os.environ['RANK']}.txt", "w"), all_threads=True, chain=False)


class Files(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, number):
        if number >= 8 and dist_rank == 1:
            read_slowly(number)
        return torch.zeros(1)


def read_slowly(number):
    time.sleep(3600)


dist_rank = int(os.environ["RANK"])


def epoch(loader):
    for batch in loader:
        total = batch.sum()
        dist.all_reduce(total)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(os.getpid(), flush=True)
    workers = int(sys.argv[1])
    epoch(DataLoader(Files(), batch_size=4, num_workers=workers))
