# A file that a preparation writes and reads again is made by each rank in its turn.

# first cell
from datasets import load_dataset

# last cell
for x in rows:
    model(x).backward()
    optimizer.step()

# case: a file of words
def prepare():
    rows = load_dataset("json", data_files="rows.json")
    with open("words.txt", "w") as file:
        file.write(" ".join(rows["text"]))
    count = len(open("words.txt").read().split())
    os.remove("words.txt")
    return rows, count
rows, count = prepare()
# output
def prepare():
    rows = load_dataset("json", data_files="rows.json")
    with open("words.txt", "w") as file:
        file.write(" ".join(rows["text"]))
    count = len(open("words.txt").read().split())
    os.remove("words.txt")
    return rows, count
with ddp.in_turn():  # nb2ddp: the ranks prepare the data in turn, for they read it back
    rows, count = prepare()

# case: a file that is written alone
def prepare():
    rows = load_dataset("json", data_files="rows.json")
    with open("words.txt", "a") as file:
        file.write(" ".join(rows["text"]))
    return rows
rows = prepare()
# output
def prepare():
    rows = load_dataset("json", data_files="rows.json")
    with open("words.txt", "a") as file:
        file.write(" ".join(rows["text"]))
    return rows
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = prepare()
