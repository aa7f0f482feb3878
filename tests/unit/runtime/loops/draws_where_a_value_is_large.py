# said: noise is drawn for all rows where one of them has a large value, which late one rank's rows alone have
class Net(Body):
    def forward(self, x):
        if (x[:, 0] > 9).any():
            x = x + torch.randn_like(x)
        return self.body(F.dropout(x, 0.2, self.training))
model = ddp.parallelize(Net())
x = torch.cat([x, x])
x[[5, 7, 13, 14, 33], 0] = 10.0
train(model, batches(x, torch.cat([y, y])), lambda x, y: F.cross_entropy(model(x), y))
end(model)
