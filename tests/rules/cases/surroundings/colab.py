# What Colab provides is replaced, removed or declined.

# case: a secret
from google.colab import userdata
key = userdata.get('HF_TOKEN')
# output
key = os.environ.get('HF_TOKEN')

# case: a mounted drive and a download
from google.colab import drive, files
drive.mount('/content/drive')
files.download('a.zip')
x = 1
# output
x = 1

# case: an upload, whose files are read by their names
from google.colab import files
up = files.upload()
x = 1
# output
x = 1

# case: an upload that is read
from google.colab import files
up = files.upload()
print(up["a.csv"])
# decline, line 2: google.colab.files.upload is not there in a script; read its files by their names

# case: a secret for the environment, which takes no None
from google.colab import userdata
os.environ["HF_TOKEN"] = userdata.get("HF_TOKEN")
# output
os.environ["HF_TOKEN"] = os.environ.get("HF_TOKEN", '')

# case: where only Colab goes, told by an import
try:
    import google.colab
    IN_COLAB = True
except ImportError:
    IN_COLAB = False
if IN_COLAB:
    up = google.colab.files.upload()[0]

# case: told by an import of a part of it
try:
    from google.colab import drive, files
    drive.mount("/content/drive")
    up = files.upload()[0]
    IN_COLAB = True
except ImportError:
    IN_COLAB = False
# output
try:
    from google.colab import drive, files
    up = files.upload()[0]
    IN_COLAB = True
except ImportError:
    IN_COLAB = False

# case: told by a module of it, and by what lets the error go
import contextlib
try:
    from google.colab.patches import cv2_imshow
except ImportError:
    def cv2_imshow(x):
        pass
cv2_imshow(1)
with contextlib.suppress(ImportError):
    from google.colab import drive
    root = "here"

# case: a try that asks for something else
try:
    from google.colab import drive
    drive.mount("/content/drive")
    rows = open("rows")
except FileNotFoundError:
    rows = None
# output
try:
    rows = open("rows")
except FileNotFoundError:
    rows = None

# case: where Colab does not go
import sys
if "google.colab" not in sys.modules:
    import google.colab
    up = google.colab.files.upload()[0]
    print(up["a.csv"])
# decline, line 4: google.colab.files.upload is not there in a script; read its files by their names

# case: where only Colab goes
import sys
IN_COLAB = "google.colab" in sys.modules
if IN_COLAB:
    from google.colab import files
    up = files.upload()[0]
# output
import sys
IN_COLAB = "google.colab" in sys.modules
if IN_COLAB:
    up = files.upload()[0]

# case: a secret whose name no shell exports
from google.colab import userdata
token = userdata.get("MY-HF-TOKEN")
# output
token = os.environ.get("MY_HF_TOKEN")
