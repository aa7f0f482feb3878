# whole: a sparse matrix
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, self.layer(x))
model = ddp.parallelize(Graph())
adjacency = torch.eye(22).roll(1, 0).to_sparse()
train(model, [(x, y)] * 3, lambda x, y: F.cross_entropy(model(x, adjacency), y))
end(model)
