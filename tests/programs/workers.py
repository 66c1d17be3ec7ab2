"""A DataLoader with workers: they inherit the preload, and stay silent."""

import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((8,), float(i))


def main():
    model = torch.nn.Linear(8, 8).cuda()
    seen = 0
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True):
            model(batch.cuda(non_blocking=True))
            seen += len(batch)
    print("seen", seen)


if __name__ == "__main__":
    main()
