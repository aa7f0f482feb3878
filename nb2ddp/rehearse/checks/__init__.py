"""The checks of a rehearsal: each function looks at one `Evidence` and returns one `Point`."""
