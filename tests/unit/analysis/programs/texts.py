# A text that `make()` returns may name a file, or is only shown, recorded and compared.

# case: kept: an argument of a call
open(make())
# asked: make(
# answer: True

# case: kept: a text made with it
name = f'{make()}.txt'
folder = 'a/' + name
open(folder)
# asked: make(
# answer: True

# case: kept: an argument of a function that uses it
def save(more, text):
    open(text)
save(1, make())
# asked: make(
# answer: True

# case: kept: an argument by its name
def save(more, text):
    open(text)
save(text=make(), more=1)
# asked: make(
# answer: True

# case: kept: a result
def f():
    return make()
open(f())
# asked: make(
# answer: True

# case: kept: an attribute
class Run:
    def __init__(self):
        self.name = make()
    def save(self):
        open(self.name)
# asked: make(
# answer: True

# case: kept: an argument of a method
class A:
    def save(self, text, more):
        open(text)
A().save(make(), 1)
# asked: make(
# answer: True

# case: kept: unpacked arguments
def show(text, more=None):
    print(more)
show(*[make()])
# asked: make(
# answer: True

# case: shown: printed
name = make()
print(f'this is {name}')
# asked: make(
# answer: False

# case: shown: an argument of a function that prints another one
def show(text, more=None):
    print(more)
show(make())
# asked: make(
# answer: False

# case: shown: a result
def f():
    return make()
print(f())
# asked: make(
# answer: False

# case: shown: an attribute
class Run:
    def __init__(self):
        self.name = make()
    def show(self):
        print(self.name)
# asked: make(
# answer: False

# case: shown: a setting that is printed
settings = dict(name=make())
print(settings['name'])
# asked: make(
# answer: False

# case: shown: recorded
rows = [make()]
others.append(rows)
json.dump(rows, f)
# asked: make(
# answer: False

# case: shown: compared
name = make()
if name == 'a':
    print('a')
# asked: make(
# answer: False

# case: shown: made from itself
name = make()
name = name + 'a'
# asked: make(
# answer: False

# case: shown: not used
make()
# asked: make(
# answer: False
