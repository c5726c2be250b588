// holdfast: the cli program.

process.exitCode = 1
