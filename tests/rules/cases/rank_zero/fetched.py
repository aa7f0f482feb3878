# A loop that asks servers and writes is rank 0's: one that gets no answer on a rank alone would part it from the others.

# first cell
import requests
from PIL import Image
from trl import SFTTrainer
from urllib.request import urlopen

# last cell
t = SFTTrainer(llm)
t.train()

# case: pictures that a generator fetches, in a function
def fetched(urls):
    for url in urls:
        answer = requests.get(url)
        if answer.ok:
            yield Image.open(answer.raw)
def fill(urls, folder):
    for number, image in enumerate(fetched(urls)):
        image.save(f"{folder}/{number}.png")
fill(urls, "a")
# output
def fetched(urls):
    for url in urls:
        answer = requests.get(url)
        if answer.ok:
            yield Image.open(answer.raw)
def fill(urls, folder):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            for number, image in enumerate(fetched(urls)):
                image.save(f"{folder}/{number}.png")
fill(urls, "a")

# case: texts, in a cell
for number, url in enumerate(urls):
    with urlopen(url) as page:
        text = page.read()
    if text:
        with open(f"{number}.txt", "wb") as file:
            file.write(text)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        for number, url in enumerate(urls):
            with urlopen(url) as page:
                text = page.read()
            if text:
                with open(f"{number}.txt", "wb") as file:
                    file.write(text)

# case: what a cell reads later, and what asks no server
rows = []
for number, url in enumerate(urls):
    rows.append(requests.get(url).text)
    with open(f"{number}.txt", "w") as file:
        file.write(rows[-1])
for number, row in enumerate(rows):
    with open(f"{number}.txt", "a") as file:
        file.write("end")
train = dict(rows=rows)
# output
rows = []
for number, url in enumerate(urls):
    rows.append(requests.get(url).text)
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open(f"{number}.txt", "w") as file:
                file.write(rows[-1])
for number, row in enumerate(rows):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open(f"{number}.txt", "a") as file:
                file.write("end")
train = dict(rows=rows)
