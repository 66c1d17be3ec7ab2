"""graph_jobs.py JOB: torch-geometric and e3nn, with torch-geometric's own FakeDataset."""
import seen

torch = seen.start()
from torch import nn


# torch-geometric: its own FakeDataset, loaders, and layers.
def _graph_train(model, batches, epochs=4, **more):
    model, losses = model.cuda(), []
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for data in batches:
            data = data.to("cuda")
            out = model(data.x, data.edge_index, **({"batch": data.batch} if more.get("pooled") else {}))
            loss = nn.functional.cross_entropy(out[: data.y.shape[0]], data.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def pyg_gcn():
    from torch_geometric.datasets import FakeDataset
    from torch_geometric.nn import GCN

    data = FakeDataset(num_graphs=1, avg_num_nodes=400, num_channels=32, num_classes=5, task="node")[0]
    return _graph_train(GCN(32, 64, 3, 5, dropout=0.5), [data] * 8)


def pyg_gat_batches():
    from torch_geometric.datasets import FakeDataset
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = GATConv(16, 16, heads=2), GATConv(32, 32), nn.Linear(32, 4)

        def forward(self, x, edges, batch):
            return self.out(global_mean_pool(self.b(self.a(x, edges).relu(), edges).relu(), batch))

    graphs = FakeDataset(num_graphs=64, avg_num_nodes=20, num_channels=16, num_classes=4, task="graph")
    return _graph_train(Net(), DataLoader(graphs, 16, shuffle=True), pooled=True)


class _Within(nn.Module):
    """Every pair of a molecule's atoms: the library's own graph needs torch-cluster."""

    def forward(self, pos, batch):
        pairs = torch.combinations(torch.arange(12)).t()
        pairs = torch.cat([pairs, pairs.flip(0)], 1)
        edges = torch.cat([pairs + 12 * k for k in range(4)], 1).to(pos.device)
        return edges, (pos[edges[0]] - pos[edges[1]]).norm(dim=-1)


def pyg_schnet():
    from torch_geometric.nn.models import SchNet

    model, losses = SchNet(hidden_channels=32, num_filters=32, num_interactions=2, interaction_graph=_Within()).cuda(), []
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(16):
        z, pos = torch.randint(1, 10, (48,)).cuda(), torch.randn(48, 3).cuda() * 3
        loss = model(z, pos, torch.arange(48).cuda() // 12).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def e3nn():
    from e3nn import o3
    from e3nn.nn import Gate

    gate = Gate("8x0e", [torch.relu], "8x0e", [torch.sigmoid], "8x1o")
    net = nn.Sequential(o3.Linear("4x0e + 4x1o", gate.irreps_in), gate, o3.Linear(gate.irreps_out, "1x0e")).cuda()
    optimizer, losses = torch.optim.Adam(net.parameters(), 1e-2), []
    for _ in range(20):
        loss = net(torch.randn(32, 16).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
