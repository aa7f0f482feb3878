# Each rank calls a reward function with its own completions alone.

# case: a counter, a set that grows, an object, and one that remembers nothing
from trl import GRPOTrainer
calls = 0
seen = set()
def late(completions, **more):
    global calls
    calls += 1
    return [calls * len(text) for text in completions]
def new(completions, **more):
    found = [float(text not in seen) for text in completions]
    seen.update(completions)
    return found
class Best:
    def __init__(self):
        self.best = 0
    def __call__(self, completions, **more):
        self.best = max(self.best, *map(len, completions))
        return [len(text) / self.best for text in completions]
best = Best()
def plain(completions, **more):
    scores = []
    for text in completions:
        scores.append(len(text))
    return scores
t = GRPOTrainer(llm, reward_funcs = [late, new, best, plain])
t.train()
# output
from trl import GRPOTrainer
calls = 0
seen = set()
def late(completions, **more):
    global calls
    calls += 1
    return [calls * len(text) for text in completions]
def new(completions, **more):
    found = [float(text not in seen) for text in completions]
    seen.update(completions)
    return found
class Best:
    def __init__(self):
        self.best = 0
    def __call__(self, completions, **more):
        self.best = max(self.best, *map(len, completions))
        return [len(text) / self.best for text in completions]
best = Best()
def plain(completions, **more):
    scores = []
    for text in completions:
        scores.append(len(text))
    return scores
t = GRPOTrainer(llm, reward_funcs = [late, new, best, plain])
ddp_model = ddp.wrap_rank_trainer(t)  # nb2ddp: the ranks' gradients are averaged
t.train()
ddp.check_replicas(ddp_model)
# note, line 4: the reward function `late` keeps something from call to call...
# note, line 8: the reward function `new` keeps something from call to call...
# note, line 15: the reward function `Best` keeps something from call to call...

# case: one that writes what it gets
from trl import GRPOTrainer
def kept(completions, **more):
    with open("texts.txt", "a") as file:
        file.writelines(completions)
    return [len(text) for text in completions]
t = GRPOTrainer(llm, reward_funcs = kept)
t.train()
# output
from trl import GRPOTrainer
def kept(completions, **more):
    with open("texts.txt", "a") as file:
        file.writelines(completions)
    return [len(text) for text in completions]
t = GRPOTrainer(llm, reward_funcs = kept)
ddp_model = ddp.wrap_rank_trainer(t)  # nb2ddp: the ranks' gradients are averaged
t.train()
ddp.check_replicas(ddp_model)
# note, line 2: what the reward function `kept` writes is of rank 0's completions alone...
