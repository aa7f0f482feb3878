# The last value of a cell is shown.

# case: a cell whose output is hidden, and one whose last value is not
%%capture
x = len("a")
x
# %%
%%capture --no-display
x
# output
%%capture
x = len("a")
x
# %%
%%capture --no-display
ddp.show(x)

# case: a name
x
# output
ddp.show(x)

# case: a name and a comment
x  # the shape
# output
ddp.show(x)  # the shape

# case: lines after the value
dataset[0]
# that was it
# output
ddp.show(dataset[0])
# that was it

# case: a semicolon in a comment
x  # not y;
# output
ddp.show(x)  # not y;

# case: two values
a, b
# output
ddp.show((a, b))

# case: a starred tuple
*a, b
# output
ddp.show((*a, b))

# case: a generator
(i for i in x)
# output
ddp.show((i for i in x))

# case: a walrus
(n := len(x))
# output
ddp.show((n := len(x)))

# case: an f-string
f"{len(x)} rows"
# output
ddp.show(f"{len(x)} rows")

# case: a word
print(1)
"done"
# output
print(1)
ddp.show("done")

# case: a text of several lines, which the notebook shows even where it is meant as a comment
x = 1
"""
model.save_pretrained("merged")
"""
# output
x = 1
ddp.show("""
model.save_pretrained("merged")
""")

# case: an ellipsis
...
# output
ddp.show(...)

# case: a call
df.head()
# output
ddp.show(df.head())

# case: the notebook's own function
def f():
    return 1
f()
# output
def f():
    return 1
ddp.show(f())

# case: the last of two on a line
x; y
# output
x; ddp.show(y)

# case: a value over several lines
dataset.filter(
    keep,  # short ones
)
# output
ddp.show(dataset.filter(
    keep,  # short ones
))

# case: a value in parentheses
(
    a
    + b
)
# output
ddp.show((
    a
    + b
))

# case: a notebook with a show of its own
show = 1
show
# output
show = 1
ddp.show(show)

# case: a notebook with a ddp of its own
ddp = 1
ddp
# output
ddp = 1
ddp_ddp.show(ddp)

# case: the figures of an evaluation that prints none
from sentence_transformers import SentenceTransformer
encoder = SentenceTransformer("m")
encoder.evaluate(pairs)
# output
from sentence_transformers import SentenceTransformer
encoder = SentenceTransformer("m")
ddp.show(encoder.evaluate(pairs))
