"""A small transformer that trains under torch.compile. What it saw itself is its last line, as JSON: losses, PyTorch's peaks, and what
dynamo counted, which a recorded run and a bare one have alike.

    compiled.py BACKEND [copies|graphs] [optimizer] [STEPS]

BACKEND: inductor, reduce-overhead (inductor with CUDA graphs), aot_eager, cudagraphs. copies: COPIES copies of each step's output are
kept. graphs: of one more forward a step the output is kept, and with it all that a backward would need; not with CUDA graphs, which give
up then. optimizer: its step is compiled, too.
"""

import gc
import json
import os
import sys

import torch
from torch import nn
from torch._dynamo.utils import counters

backend, options = sys.argv[1], sys.argv[2:]
steps = int(options[-1]) if options and options[-1].isdigit() else 40
WIDTH, LENGTH, BATCH, WORDS, COPIES = 256, 64, 16, 512, int(os.environ.get("COPIES", 64))  # 1 MiB an output
how = {"mode": backend} if backend == "reduce-overhead" else {"backend": backend}
gc.disable()  # when it runs hangs on how many objects there are, and what it finds on when it runs


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.all(self.before(x)).view(*x.shape[:2], 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) / 8, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return x, self.head(x)


torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
fast = torch.compile(model, **how)
step = torch.compile(optimizer.step, **how) if "optimizer" in options else optimizer.step
losses, kept = [], []
for _ in range(steps):
    words = torch.randint(WORDS, (BATCH, LENGTH + 1)).cuda()
    torch.compiler.cudagraph_mark_step_begin()
    hidden, logits = fast(words[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    step()
    optimizer.zero_grad()
    losses.append(loss.item())
    if "copies" in options:
        kept.append(hidden.detach().repeat(COPIES, 1, 1))  # LEAK
    if "graphs" in options:
        kept.append(fast(words[:, 1:])[1].mean())
torch.cuda.synchronize()
print(
    json.dumps(
        {
            "steps": steps,
            "losses": losses,
            "peak": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sum(counters["graph_break"].values()),
            "skips": counters["inductor"]["cudagraph_skips"],
        }
    )
)
