# A server on a fixed port is noted, for every rank starts one.

# case: the port in a variable
port = 9000
port, game = launch_game(port, None)
# note, line 1: every rank starts a server on this port, and only the first one gets it: in the script, add `local_rank` to the number

# case: a port by keyword
HTTP_PORT = 9000
server.start(port=HTTP_PORT)
# note, line 1: every rank starts a server ...

# case: a literal port
uvicorn.run(app, port=8000)
# note, line 1: every rank starts a server ...

# case: the port of an address
server = HTTPServer(("", 8000), Handler)
# note, line 1: every rank starts a server ...

# case: two servers on one port are noted once
def play():
    return launch_game(port)
port = 9000
play()
launch_game(port)
# note, line 3: every rank starts a server ...

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
