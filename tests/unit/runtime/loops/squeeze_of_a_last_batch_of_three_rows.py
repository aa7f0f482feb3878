# whole: squeeze of a last batch of three rows
class Net(Body):
    def forward(self, x):
        return self.body(x).squeeze()
model = ddp.parallelize(Net())
model.body[2] = nn.Linear(8, 1)
train(model, batches(x[:19], y[:19]), lambda x, y: F.mse_loss(model(x), y.float()))
end(model)
