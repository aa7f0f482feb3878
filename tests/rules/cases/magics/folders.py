# %cd changes the folder.

# case: a folder
%cd /tmp
# output
os.chdir("/tmp")

# case: quietly
%cd -q /tmp
# output
os.chdir("/tmp")

# case: quoted
%cd "my folder"
# output
os.chdir("my folder")

# case: quotes and backslashes as a shell reads them
base = {"a": "x"}
%cd drive/'My Drive'/project
%cd /content/My\ Drive/x
%cd {base["a"]}/"My Drive"
# output
base = {"a": "x"}
os.chdir("drive/My Drive/project")
os.chdir("/content/My Drive/x")
os.chdir(f'{base["a"]}/My Drive')

# case: the folder that Colab begins in, which other machines have not
%cd /content/
%cd "/content"
# output
os.path.isdir("/content/") and os.chdir("/content/")
os.path.isdir("/content") and os.chdir("/content")

# case: home
%cd
# output
os.chdir(os.path.expanduser("~"))

# case: below home
%cd ~/x
# output
os.chdir(os.path.expanduser("~/x"))

# case: a variable
d = "x"
%cd {d}
# output
d = "x"
os.chdir(f"{d}")

# case: where am I
here = %pwd
# output
here = os.getcwd()
