# The value of a cell's last line is printed, as the notebook shows it.

# case: three cells
x = 1
x
# %%
y = 2
# %%
x + y
# output
x = 1
ddp.show(x)
# %%
y = 2
# %%
ddp.show(x + y)

# case: display
for batch in batches:
    display(batch, display_id=True)  # look at it
display(df, df.shape)
# output
for batch in batches:
    print(batch)  # look at it
print(df, df.shape)

# case: the notebook's own display
def display(x):
    print(x)
display(1)

# case: a timed line
%time len(x)
# output
ddp.show(len(x))
