"""Jobs without training that end within seconds: iterations.py collects|answers|loads|fails"""
import sys

import torch

what = sys.argv[1]
ON = {"device": "cuda"}
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda().eval()
outputs, answers = [], 0
rows = 1 << 17 if what == "fails" else 1024
with torch.no_grad():
    for _ in range(0 if what == "loads" else 60):
        batch = torch.randn(rows, 256, **ON)
        if what == "answers":
            answers += net(batch).shape[0]
        else:
            outputs.append(net(batch))
print(answers, len(outputs))
