// The exit codes of `holdfast`. A command that ran to its end passes on its own.

/** The command line makes no sense (as conmon-rs answers it). */
export const EXIT_USAGE = 2
/** A session broke: how the command ended is unknown. The number is Linux's EREMOTEIO. */
export const EXIT_BROKEN = 121
/** Nothing ran: no such container, no daemon, refused (as docker and podman answer it). */
export const EXIT_FAILED = 125
/** The command was found but may not be executed (as a shell answers it). */
export const EXIT_NOT_EXECUTABLE = 126
/** The command was not found (as a shell answers it). */
export const EXIT_NOT_FOUND = 127
/** Whoever read our output has gone: 128 + SIGPIPE. */
export const EXIT_OUTPUT_GONE = 141
