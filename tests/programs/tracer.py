"""A tracer that raises at code that it does not know is taken off its thread by Python. Ours must not be what it meets."""

import sys

import torch

seen = set()


def tracer(frame, event, argument):
    file = frame.f_code.co_filename
    seen.add(file)
    if "strandline" in file.rsplit("/", 1)[-1]:
        raise RuntimeError("unknown code")
    return None


sys.settrace(tracer)
if "profile" in sys.argv:
    sys.settrace(None)
    sys.setprofile(tracer)
model = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for _ in range(20):
    model(torch.randn(8, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
on = sys.getprofile() if "profile" in sys.argv else sys.gettrace()
sys.settrace(None)
sys.setprofile(None)
print("still set:", on is tracer, "files:", len([f for f in seen if f.startswith("<")]))
