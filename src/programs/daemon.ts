// holdfast: the daemon program.

process.exitCode = 1
