# A count of the GPUs is noted where it decides something.

# first cell
import torch

# case: a count that is kept
n = torch.cuda.device_count()
# note, line 1: this counts the GPUs of the machine, of which each rank uses one; check what the number is used for

# case: printed
print(torch.cuda.device_count())

# case: printed in an f-string
print(f"{torch.cuda.device_count()} GPUs")

# case: logged
logger.info('%d', torch.cuda.device_count())

# case: kept and printed
n = torch.cuda.device_count()
print('GPUs:', n)

# case: shown below the cell
torch.cuda.device_count()

# case: it scales the batch
n = torch.cuda.device_count()
print(n)
batch = 8 * n
# note, line 1: this counts the GPUs of ...

# case: it is the number of iterations
for i in range(torch.cuda.device_count()):
    print(i)
# note, line 1: this counts the GPUs of ...

# case: it is a condition
if torch.cuda.device_count() > 1:
    print('several')
# note, line 1: this counts the GPUs of ...

# case: it is an argument
print([torch.zeros(1) for _ in range(3)])
args = dict(gpus=torch.cuda.device_count())
# note, line 2: this counts the GPUs of ...
