# Methods named like those of a Path, pictures and archives that touch no file of another rank.

# first cell
import io, os, shutil, tarfile, tempfile, zipfile
from pathlib import Path
from PIL import Image
import numpy as np
from trl import SFTTrainer
words, names = [], []

# case: text that a path gives
words.extend(Path("a.txt").read_text().replace("\n", " ").split())
text = Path("a.txt").read_text()
names.append(text.replace("o", "u"))

# case: a part of a path
path = Path("a_b.txt")
names.append(path.stem.replace("_", " "))
names.append(path.name.replace("_", "-"))

# case: text in a function
def label(file):
    name = Path(file).stem.replace("_", " ")
    return name
names.append(label("a_b.txt"))

# case: paths that are made of others
folder = Path("a")
file = (folder.parent.resolve() / "b").with_suffix(".txt")
file.rename("c.txt")
# output
folder = Path("a")
file = (folder.parent.resolve() / "b").with_suffix(".txt")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        file.rename("c.txt")

# case: methods of a class of the notebook
class Node:
    def __init__(self):
        self.uses = 0
    def touch(self):
        self.uses += 1
    def unlink(self, missing_ok=False):
        self.uses = 0
class Cache:
    def __init__(self):
        self.nodes = {}
    def get(self, key):
        node = self.nodes.setdefault(key, Node())
        node.touch()
        return node.uses
node = Node()
node.touch()
node.unlink(missing_ok=True)
uses = Cache().get("a")
print(node.uses + uses)

# case: methods of a class of a library, and of one that derives from it
from multiprocessing.shared_memory import SharedMemory
class Block(SharedMemory):
    def free(self):
        self.unlink()
class box(SharedMemory):
    size = 8
block = SharedMemory(create=True, size=8)
block.unlink()
Block(create=True, size=8).free()
box(create=True, size=8).unlink()

# case: a picture in a buffer
class Jpeg:
    def __init__(self):
        self.buffer = io.BytesIO()
    def __call__(self, pixels):
        picture = Image.fromarray(pixels)
        picture.save(self.buffer, format="PNG")
        return self.buffer.getvalue()
def encode(pixels, fp):
    picture = Image.fromarray(pixels)
    picture.save(fp, format="PNG")
buffer = io.BytesIO()
encode(pixels, buffer)
print(Jpeg()(pixels), buffer.getvalue())

# case: an archive in a buffer
class Pack:
    def __init__(self):
        self.buffer = io.BytesIO()
    def add(self, text):
        with zipfile.ZipFile(self.buffer, "w") as archive:
            archive.writestr("a", text)
        with tarfile.open(fileobj=self.buffer, mode="w") as archive:
            archive.add("a")
        return len(self.buffer.getvalue())
print(Pack().add("a"))

# case: pictures and archives by a path that is put together
picture = Image.open("a.png")
folder = os.path.join("out", "a")
picture.save(folder + "/b.png")
picture.save("%s/c.png" % folder)
picture.save("{}/d.png".format(folder))
picture.save(f"{folder}/e.png")
picture.save(fp=Path(folder) / "f.png")
with zipfile.ZipFile(file=folder, mode="w") as archive:
    archive.write("a")
# output
picture = Image.open("a.png")
folder = os.path.join("out", "a")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        picture.save(folder + "/b.png")
        picture.save("%s/c.png" % folder)
        picture.save("{}/d.png".format(folder))
        picture.save(f"{folder}/e.png")
        picture.save(fp=Path(folder) / "f.png")
        with zipfile.ZipFile(file=folder, mode="w") as archive:
            archive.write("a")

# case: below a temporary folder
with tempfile.TemporaryDirectory() as d:
    part = Path(d) / "part"
    part.mkdir()
    (part.resolve() / "a").write_text("a")
    with (part / "b").open("w") as f:
        f.write("b")
    with open(f"{d}/c", "w") as f:
        f.write("c")
    os.makedirs(os.path.join(d, "d"))
    np.save(str(part) + "/e.npy", x)
    shutil.copy("a", part / "f")

# case: below a temporary folder that a function gets, or an object keeps
def make(folder, n):
    for i in range(n):
        with open(os.path.join(folder, f"{i}.txt"), "w") as f:
            f.write("a")
make(tempfile.mkdtemp(), 4)
class Cache:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
    def put(self, key, value):
        np.save(self.folder / f"{key}.npy", value)
Cache().put(1, x)

# case: below a temporary folder that a cell names, which all ranks take from rank 0
folder = tempfile.mkdtemp()
os.mkdir(os.path.join(folder, "a"))
shutil.rmtree(folder)
# output
folder = tempfile.mkdtemp()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.mkdir(os.path.join(folder, "a"))
        shutil.rmtree(folder)

# case: a temporary folder that all ranks take from rank 0, where nothing else is named
given = os.environ.get("DATA")
folder = tempfile.mkdtemp() if given is None else given
np.save(os.path.join(folder, "a.npy"), x)
# output
given = os.environ.get("DATA")
folder = tempfile.mkdtemp() if given is None else given
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        np.save(os.path.join(folder, "a.npy"), x)

# case: out of a temporary folder
with tempfile.TemporaryDirectory() as d:
    part = Path(d) / "part"
    part.mkdir()
    part.rename("out")
folder = Path(tempfile.mkdtemp())
shutil.copytree(folder / "a", "out")
# output
with tempfile.TemporaryDirectory() as d:
    part = Path(d) / "part"
    part.mkdir()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            part.rename("out")
folder = Path(tempfile.mkdtemp())
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        shutil.copytree(folder / "a", "out")

# case: out of a temporary folder, into an archive and to the hub
from huggingface_hub import upload_folder
with tempfile.TemporaryDirectory() as d:
    shutil.make_archive("out", "zip", d)
    shutil.make_archive(f"{d}/own", "zip", "data")
    upload_folder(folder_path=d, repo_id="me/model")
# output
from huggingface_hub import upload_folder
with tempfile.TemporaryDirectory() as d:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            shutil.make_archive("out", "zip", d)
    shutil.make_archive(f"{d}/own", "zip", "data")
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            upload_folder(folder_path=d, repo_id="me/model")

# case: a picture to a sum of sums
s0 = words
s1 = s0 + s0
s2 = s1 + s1
s3 = s2 + s2
s4 = s3 + s3
s5 = s4 + s4
s6 = s5 + s5
s7 = s6 + s6
s8 = s7 + s7
s9 = s8 + s8
s10 = s9 + s9
s11 = s10 + s10
s12 = s11 + s11
s13 = s12 + s12
s14 = s13 + s13
s15 = s14 + s14
s16 = s15 + s15
s17 = s16 + s16
s18 = s17 + s17
s19 = s18 + s18
s20 = s19 + s19
s21 = s20 + s20
s22 = s21 + s21
s23 = s22 + s22
s24 = s23 + s23
Image.new("L", (8, 8)).save(s24)

# last cell
t = SFTTrainer(llm)
t.train()
