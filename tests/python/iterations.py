"""Jobs that end within seconds, without training: iterations.py collects|answers|loads|fails; and some that train, and then do something else for
longer: serves|threads|tunes|predicts|evaluates; that which tunes trains for five steps only, what is predicted is freed as that ends, and with
threads another one than trained serves"""
import sys, threading, time

import torch

what = sys.argv[1]
ON = {"device": "cuda"}
began = time.monotonic()
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda().eval()
outputs = []
trains = what in ("serves", "threads", "tunes", "predicts", "evaluates")
if trains:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(5 if what == "tunes" else 30):
        net(torch.randn(64, 256, **ON)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
trained = time.monotonic()
rows = 1 << 17 if what == "fails" else 1024


@torch.no_grad()
def loop(outputs, answers=0):
    for i in range(0 if what == "loads" else 60):
        batch = torch.randn(rows, 256, **ON)
        if what in ("answers", "evaluates"):
            answers += net(batch).shape[0]
        else:
            outputs.append(net(batch))
        if trains:
            time.sleep((trained - began) / 20)
    return answers, len(outputs)


if what == "threads":
    server = threading.Thread(target=loop, args=[outputs])
    server.start()
    server.join()
else:
    print(*loop([] if what == "predicts" else outputs))
