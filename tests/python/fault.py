"""A training job whose device breaks in the middle of step 7: fault.py [STATUS].

With STATUS, on the simulated device, calls return that; without, on a card, an index that is out of bounds fails an assertion.

It prints what PyTorch raised, and that everything fails from then on.
"""

import ctypes
import json
import sys

import torch

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
side = torch.cuda.Stream()


def train(step):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 64, device="cuda")).square().mean()
    if step == 7:
        with torch.cuda.stream(side):
            if sys.argv[1:]:
                ctypes.CDLL("libcuda.so.1").strandline_sim_break(int(sys.argv[1]))  # a kernel that is under way goes wrong
            else:
                model.weight[torch.tensor([1 << 20], device="cuda")]
        side.synchronize()  # HEARD
    loss.backward()
    optimizer.step()


said = {}
try:
    for step in range(1, 11):
        train(step)
except RuntimeError as e:
    said["first"] = str(e).splitlines()[0]
try:
    torch.cuda.synchronize()
except RuntimeError as e:
    said["second"] = str(e).splitlines()[0]
print(json.dumps(said), flush=True)
torch.cuda.synchronize()  # and ends by an exception, as jobs do
