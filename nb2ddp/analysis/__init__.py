"""Answer questions about a notebook's code: names, kinds of values, loops, side effects. Edits nothing."""
