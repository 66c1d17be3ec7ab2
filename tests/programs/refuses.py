"""A job that refuses what it did not ask for: an audit hook that raises, or functions of Python's replaced by others that do.

    refuses.py event NAME       the audit event that is refused
    refuses.py function NAME    the builtin, or function of `functools` or `atexit`, that is replaced
"""

import atexit
import builtins
import functools
import sys

import torch
import torch._dynamo  # what the first backward would import
from torch.optim.optimizer import register_optimizer_step_pre_hook

how, refused = sys.argv[1:]
called = []
register_optimizer_step_pre_hook(lambda *_: called.append(1))


def train(device):
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(150):
        model(torch.ones(2, 8, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Refused(Exception):
    pass


def policy(event, arguments):
    if event == refused:
        raise Refused(event)


def replaced(*arguments, **named):
    name = sys._getframe(1).f_code.co_filename
    if name == "<strandline>":
        raise Refused(refused)
    return real(*arguments, **named)


train("cpu")  # what torch compiles itself is compiled now
if how == "function":
    owner = next(m for m in (builtins, functools, atexit) if hasattr(m, refused))
    real = getattr(owner, refused)
    setattr(owner, refused, replaced)
else:
    sys.addaudithook(policy)
train("cuda")
for _ in range(10**6):
    pass
if how == "function":
    setattr(owner, refused, real)
print("trained", len(called))
