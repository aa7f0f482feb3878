# What installs nothing is left alone.

# case: a shell line
!nvidia-smi

# case: Python
x = 1

# case: a list of packages
!pip list

# case: a search for a package
!pip freeze | grep torch

# case: a download
!wget -q https://example.com/audio.mp3

# case: a text
print("pip install unsloth")

# case: an install into another folder
import subprocess
subprocess.run(["pip", "install", "-e", "."], cwd="repo")

# case: a file that is written
%%writefile requirements.txt
unsloth

# case: a command that the notebook runs
import os
os.system("ls")
