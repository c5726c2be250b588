// holdfast: the server program.

process.exitCode = 1
