"""A job has hooks on all optimizers, and CUDA starts in one of them: nobody may change the table that is gone through meanwhile.

    hooks_of_the_job.py [once | list]   CUDA starts before the first step
                                        once: the last hook removes itself; list: the first one makes a list of the arguments
"""

import sys
import time

import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

called = []
on_card = []


def before(optimizer, args, kwargs):
    called.append("before")
    if len(called) > 6 and not on_card:
        on_card.append(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass


def after(optimizer, args, kwargs):
    called.append("after")


def once(optimizer, args, kwargs):
    for handle in handles:
        handle.remove()


register_optimizer_step_pre_hook(before)
register_optimizer_step_pre_hook(lambda *_: None)
register_optimizer_step_post_hook(after)
handles = [register_optimizer_step_post_hook(once)] if sys.argv[1:] == ["once"] else []
if sys.argv[1:]:
    on_card.append(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
    time.sleep(0.5)
    if sys.argv[1] == "list":
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        list_of = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: (list(args), kwargs))
        _global_optimizer_pre_hooks.move_to_end(list_of.id, last=False)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    block = torch.empty(1000 * step + 1000, dtype=torch.uint8, device="cuda") if on_card else None
print(len(called), len(on_card))
