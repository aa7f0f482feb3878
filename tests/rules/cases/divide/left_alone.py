# A loop whose iterations may depend on one another stays as it is.

# first cell
import json, random
from pathlib import Path
import torch
from tqdm import tqdm
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from trl import SFTConfig, SFTTrainer
llm = AutoModelForCausalLM.from_pretrained('m')
tok = AutoTokenizer.from_pretrained('m')
questions = ['a', 'b', 'c']
data = load_dataset('d', split='train')

# case: no list to fill
answers = []
for q in questions:
    print(llm.generate(q))

# case: a list that is not empty
answers = ['x']
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a list that is used before
answers = []
other = answers
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a list with two names
answers = other = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: the length of the list is read
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    print(len(answers))

# case: a counter
n = 0
answers = []
for q in questions:
    n += 1
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a chat history
chat = [1]
answers = []
for q in questions:
    chat.append(q)
    answers.append(llm.generate(chat))

# case: an answer that depends on the one before
last = 0
answers = []
for q in questions:
    last = llm.generate(last)
    answers.append(last)

# case: a name that is bound in some iterations only
answers = []
for q in questions:
    if q:
        x = q
    answers.append(llm.generate(x))

# case: the last item read later
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
print(out)

# case: the last item read in a function
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
def show():
    return out

# case: a break
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    if not out:
        break

# case: an else
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
else:
    print('done')

# case: a dict
found = {}
answers = []
for q in questions:
    found[q] = llm.generate(q)
    answers.append(q)

# case: the items are changed
answers = []
for row in [{}, {}]:
    row['x'] = llm.generate(row)
    answers.append(row)

# case: an element of a nested list
table = [[0, 0]]
answers = []
for q in questions:
    table[0][1] = q
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: an attribute
answers = []
for q in questions:
    llm.last = q
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: an open file
f = open('a')
answers = []
for q in questions:
    f.write(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: data made on the way
answers = []
for q in load_dataset('d')['train']:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a file
answers = []
for q in questions:
    torch.save(q, 'x.pt')
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a call for its effect
answers = []
for q in questions:
    metric.add_batch(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: an iterator
answers = []
for q in questions:
    x = next(stream)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: random numbers
answers = []
for q in questions:
    x = random.choice(questions)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a seed
answers = []
for q in questions:
    torch.manual_seed(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: vLLM
answers = []
for q in questions:
    answers.append(llm.fast_generate(q))

# case: gradients
answers = []
for q in questions:
    answers.append(llm(q).logits)

# case: training
answers = []
for q in questions:
    llm(q).loss.backward()
    answers.append(llm.generate(q))

# case: a set, whose order differs
answers = []
for q in set(questions):
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: something unknown
answers = []
for q in things():
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a loader
answers = []
for q in torch.utils.data.DataLoader(questions, shuffle=True):
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: under a condition
answers = []
if questions:
    for q in questions:
        out = llm.generate(q, do_sample=False)
        answers.append(out)

# case: in another loop
for epoch in range(2):
    answers = []
    for q in questions:
        out = llm.generate(q, do_sample=False)
        answers.append(out)

# case: a function that counts
def ask(q):
    global n
    n += 1
    return llm.generate(q)
answers = []
for q in questions:
    answers.append(ask(q))

# case: a function that keeps
seen = []
def ask(q):
    seen.append(q)
    return llm.generate(q)
answers = []
for q in questions:
    answers.append(ask(q))

# case: a function with a cache
@cached
def ask(q):
    return llm.generate(q)
answers = []
for q in questions:
    answers.append(ask(q))

# case: an object that remembers
class Agent:
    def generate(self, q):
        self.n = q
        return q
llm = Agent()
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a function that sees how much is done
def done():
    return len(answers)
answers = []
for q in questions:
    print(done())
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a lambda that keeps
keep = lambda x: questions.pop()
answers = []
for q in questions:
    x = keep(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a function by another name
def ask(q):
    questions.sort()
    return q
other = ask
answers = []
for q in questions:
    q = other(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a partial
from functools import partial
ask = partial(print, end='')
answers = []
for q in questions:
    x = ask(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a callback
def stop(*x):
    questions.sort()
answers = []
for q in questions:
    answers.append(llm.generate(q, stopping_criteria=[stop]))

# case: a property
class State:
    @property
    def next(self):
        self.n += 1
state = State()
answers = []
for q in questions:
    x = state.next
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: an object of an unknown class
agent = Agent()
answers = []
for q in questions:
    x = agent.ask(q)
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: an object of an unknown class, by another name
from lib import Ids
ids = Ids()
answers = []
for q in questions:
    it = ids
    n = it.next_id()
    answers.append(llm.generate(n))

# case: an object of an unknown class, in a comprehension
from lib import Ids
ids = Ids()
answers = []
for q in questions:
    n = [it.next_id() for it in [ids]]
    answers.append(llm.generate(n))

# case: an object of an unknown class, as an item
from lib import Ids
several = {'ids': Ids()}
answers = []
for q in questions:
    n = several['ids'].next_id()
    answers.append(llm.generate(n))

# case: an object of an unknown class, that a function returns
from lib import Ids
ids = Ids()
def current():
    return ids
answers = []
for q in questions:
    it = current()
    answers.append(llm.generate(it.next_id()))

# case: a cache of keys
answers = []
for q in questions:
    answers.append(llm.generate(q, past_key_values=cache))

# case: the notebook divides the items itself
import os
questions = questions[int(os.environ.get('RANK', 0)) :: 2]
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a shell line
answers = []
for q in questions:
    get_ipython().system('ls')
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a function called with a set
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
answers = collect(set(questions))

# case: a function called under a condition
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
if questions:
    answers = collect(questions)

# case: a function with a second name
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
keep = collect
answers = collect(questions)

# case: a function called by another
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
def again():
    return collect(questions)
answers = again()

# case: a function called where rank 0 writes
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
json.dump(collect(questions), open('a.json', 'w'))
answers = 1

# last cell
t = SFTTrainer(llm, args=SFTConfig('o'), train_dataset=answers)
t.train()
