# What is no server of every rank on a fixed port is not noted.

# case: a port of a request
head_port = 11000
requests.get(f'http://127.0.0.1:{head_port}/x')

# case: a port of a connection
db = connect(host='h', port=5432)

# case: a port that is printed
port = 9000
print(port)

# case: any free port
serve(app, port=0)

# case: a port that depends on the rank
serve(app, port=9000 + int(os.environ.get('LOCAL_RANK', 0)))

# case: a function that is never called
def start(port):
    return launch_game(port)

# case: a function that finds a free port
from unsloth import launch_openenv
port = 9000
port, game = launch_openenv(port, None)

# case: one process alone
# flags: --strategy balanced
uvicorn.run(app, port=8000)

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
