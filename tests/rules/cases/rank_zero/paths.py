# Folders, archives and pictures that one rank makes.

# first cell
import os, zipfile
from pathlib import Path
import cv2
from PIL import Image
from trl import SFTTrainer

# case: a folder by its path
out = Path("a") / "b"
out.mkdir(parents=True)
(out / "c").unlink()
# output
out = Path("a") / "b"
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        out.mkdir(parents=True)
        (out / "c").unlink()

# case: a path that a function gives
folder().mkdir()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        folder().mkdir()

# case: a folder that may exist, and other things with such methods
Path("a").mkdir(exist_ok=True)
text = "a".replace("a", "b")
frame = frame.rename(columns=names)

# case: a path that takes another's place
Path("a").replace("b")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        Path("a").replace("b")

# case: a parameter that is a path by what takes its place
def kept(model, path):
    path.replace(path.with_suffix(".old"))
    model.save_pretrained(path)
for step in range(2):
    kept(llm, step)
# output
def kept(model, path):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            path.replace(path.with_suffix(".old"))
            model.save_pretrained(path)
for step in range(2):
    kept(llm, step)

# case: folders that go with those above them, and a file that is cut
os.removedirs("a/b")
os.renames("c", "d/e")
os.truncate("f", 0)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.removedirs("a/b")
        os.renames("c", "d/e")
        os.truncate("f", 0)

# case: pictures
picture = Image.open("a.png").resize((8, 8))
picture.save("b.png")
cv2.imwrite("c.png", pixels)
# output
picture = Image.open("a.png").resize((8, 8))
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        picture.save("b.png")
        cv2.imwrite("c.png", pixels)

# case: an archive
with zipfile.ZipFile("a.zip") as archive:
    archive.extractall("a")
with zipfile.ZipFile("b.zip", "w") as archive:
    archive.write("a")
# output
with zipfile.ZipFile("a.zip") as archive:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            archive.extractall("a")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with zipfile.ZipFile("b.zip", "w") as archive:
            archive.write("a")

# last cell
t = SFTTrainer(llm)
t.train()
