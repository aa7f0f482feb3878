# A value that an install gives is that of a successful one.

# case: the lines that pip prints
out = !pip install unsloth
print(out)
# output
out = []
print(out)

# case: the process that ran pip
import subprocess as sp
r = sp.run(["pip", "install", "x"])
print(r.returncode)
# output
import subprocess as sp
r = sp.CompletedProcess([], 0)
print(r.returncode)

# case: its exit code
import os
if os.system("pip install unsloth") == 0:
    x = 1
print(x)
# output
if 0 == 0:
    x = 1
print(x)

# case: a value that a shell line and a magic read, too
import os
version = "1.0"
folder = "proj"
!pip install foo=={version} --target {folder}
!wget http://x/{version}.zip
%env VERSION=$version
%cd {folder}
# output
import os
version = "1.0"
folder = "proj"
!wget http://x/{version}.zip
%env VERSION=$version
%cd {folder}
