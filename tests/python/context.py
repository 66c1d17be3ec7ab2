"""What a process uses of each device that does nothing but have a context there: the size of a context, on an idle machine.

    context.py              prints {"used": [bytes of device 0, …]} as JSON
    context.py hold WIDTH LAYERS [pluggable]   trains a little, and prints what the device says is used while all of it is held
"""

import json
import os
import sys

import torch

if sys.argv[1:2] != ["hold"]:
    used = []
    for device in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(device)
        used.append(total - free)
    print(json.dumps({"used": used}))
    sys.exit()

width, layers = int(sys.argv[2]), int(sys.argv[3])
if "pluggable" in sys.argv[4:]:
    import strandline

    strandline.use_allocator()
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(6):
    model(torch.randn(64, width, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
said = {"used": [total - free], "reserved": torch.cuda.memory_reserved(), "allocated": torch.cuda.memory_allocated()}
print(json.dumps(said), flush=True)
# As it stands: nothing is given back on the way out, so that the recording ends with what the device was asked about.
os._exit(0)
