# A magic of an extension that only shows something is left out, and said to be.

# case: versions
%load_ext watermark
%watermark -v -p numpy,torch
x = 1
# output
# nb2ddp: %watermark is left out
x = 1
# note, line 2: %watermark is left out, for a script has no such magic; if it does more than show something, write it in Python

# case: a name in parentheses
%watermark -a "Me, You (They) & Others" -u -d
x = 1
# output
# nb2ddp: %watermark is left out
x = 1
# note, line 1: %watermark is left out...

# case: a space behind the percent sign
% matplotlib inline
x = 1
# output
x = 1
