# A loop is divided whatever its iterations do for themselves.

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

# case: a condition
answers = []
for q in questions:
    if not q:
        continue
    out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    if not q:
        continue
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: several answers for each item
answers = []
for q in questions:
    for n in range(2):
        out = llm.generate(q, do_sample=False)
        answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    for n in range(2):
        out = llm.generate(q, do_sample=False)
        answers.append(out)

# case: several answers at once
answers = []
for q in questions:
    answers.extend(llm.generate(q, do_sample=False))
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    answers.extend(llm.generate(q, do_sample=False))

# case: a list of its own
answers = []
for q in questions:
    chat = []
    chat.append({'role': 'user', 'content': q})
    out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    chat = []
    chat.append({'role': 'user', 'content': q})
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a string that grows
answers = []
for q in questions:
    text = ''
    text += q
    out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    text = ''
    text += q
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: names that are bound again
answers = []
for q in questions:
    x = tok(q)
    x = x.to('cuda')
    del x
    out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    x = tok(q)
    x = x.to('cuda')
    del x
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a scored answer
answers = []
for q in questions:
    with torch.no_grad():
        answers.append(llm(q).logits.argmax())
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    with torch.no_grad():
        answers.append(llm(q).logits.argmax())

# case: a retry
answers = []
for q in questions:
    out = 0
    while not out:
        out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    out = 0
    while not out:
        out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a retry that ends
answers = []
for q in questions:
    for n in range(2):
        if n:
            break
    out = llm.generate(q, do_sample=False)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    for n in range(2):
        if n:
            break
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a comprehension
answers = []
for q in questions:
    out = [x.strip() for x in tok.batch_decode(llm.generate(q, do_sample=False))]
    answers.extend(sorted(out, key=lambda x: len(x)))
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    out = [x.strip() for x in tok.batch_decode(llm.generate(q, do_sample=False))]
    answers.extend(sorted(out, key=lambda x: len(x)))

# case: texts by other names
templates = ['a {}', 'b {}']
answers = []
for q in questions:
    text = q
    text = text.strip()
    same = text
    prompts = [t.format(same.title()) for t in templates]
    answers.append(llm.generate(prompts, q.strip(), do_sample=False))
# output
templates = ['a {}', 'b {}']
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    text = q
    text = text.strip()
    same = text
    prompts = [t.format(same.title()) for t in templates]
    answers.append(llm.generate(prompts, q.strip(), do_sample=False))

# case: the GPU's cache is emptied
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    torch.cuda.empty_cache()
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    torch.cuda.empty_cache()

# case: two lists
answers, prompts = [], []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    prompts.append(q)
# output
answers, prompts = [], []
for q in ddp.share_loop(questions, answers, prompts):  # nb2ddp: divided over the ranks
    out = llm.generate(q, do_sample=False)
    answers.append(out)
    prompts.append(q)

# case: a model without gradients
answers = []
with torch.no_grad():
    for q in questions:
        answers.append(llm(q).logits.argmax())
# output
answers = []
with torch.no_grad():
    for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
        answers.append(llm(q).logits.argmax())

# case: a pipeline
pipe = pipeline('text-classification', model=llm)
answers = []
for q in questions:
    answers.append(pipe(q)[0])
# output
pipe = pipeline('text-classification', model=llm)
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    answers.append(pipe(q)[0])

# case: a function that generates and keeps nothing
def ask(q):
    x = []
    x.append(q)
    return llm.generate(x, do_sample=False)
answers = []
for q in questions:
    answers.append(ask(q))
# output
def ask(q):
    x = []
    x.append(q)
    return llm.generate(x, do_sample=False)
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    answers.append(ask(q))

# case: a loop in a function that a cell calls
def collect(items):
    answers = []
    for q in items:
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
answers = collect(questions)
# output
def collect(items):
    answers = []
    for q in ddp.share_loop(items, answers):  # nb2ddp: divided over the ranks
        out = llm.generate(q, do_sample=False)
        answers.append(out)
    return answers
answers = collect(questions)

# case: a name that is bound again before it is read
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
out = 1
print(out, [q for q in questions])
for q in questions:
    print(q)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    out = llm.generate(q, do_sample=False)
    answers.append(out)
out = 1
print(out, [q for q in questions])
for q in questions:
    print(q)

# case: sampling and printing
answers = []
for q in questions:
    out = llm.generate(q)
    print(out)
    answers.append(out)
# output
answers = []
for q in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
    out = llm.generate(q)
    print(out)
    answers.append(out)
# note, line 2: the ranks divide this loop. If the model samples, the texts differ from those of one process, as with another seed; do_sample=False gives the same texts
# note, line 2: the ranks divide this loop; only what rank 0 prints of it is shown

# case: a program that makes training data batch by batch
def make(llm, items, size):
    rows = []
    for start in range(0, len(items), size):
        batch = items[start : start + size]
        inputs = tok(batch, return_tensors="pt").to("cuda")
        with torch.no_grad():
            out = llm.generate(**inputs, num_return_sequences=25, do_sample=True)
        for n, text in enumerate(tok.batch_decode(out)):
            if text.strip():
                rows.append({"question": batch[n // 25], "text": text})
    return rows
answers = make(llm, questions, size=2)
# output
def make(llm, items, size):
    rows = []
    for start in ddp.share_loop(range(0, len(items), size), rows):  # nb2ddp: divided over the ranks
        batch = items[start : start + size]
        inputs = tok(batch, return_tensors="pt").to("cuda")
        with torch.no_grad():
            out = llm.generate(**inputs, num_return_sequences=25, do_sample=True)
        for n, text in enumerate(tok.batch_decode(out)):
            if text.strip():
                rows.append({"question": batch[n // 25], "text": text})
    return rows
answers = make(llm, questions, size=2)
# note, line 3: the ranks divide this loop. ...

# last cell
t = SFTTrainer(llm, args=SFTConfig('o'), train_dataset=answers)
t.train()
