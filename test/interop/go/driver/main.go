// Command driver is the client side of the tests and benchmarks: client-go's executors, and lean clients that parse no
// more than they must and so show a server's limit rather than their own. It never asks for URLs but in `table`: each
// session's URL is an argument, or a line of stdin.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
)

var (
	flags     = flag.NewFlagSet("driver", flag.ExitOnError)
	transport = flags.String("transport", "spdy", "spdy or ws; with client-go also ws5; table: several, separated by commas")
	size      = flags.Int64("bytes", 1<<20, "transfer, forward: bytes to move")
	upload    = flags.Bool("upload", false, "transfer, forward: from here to the server")
	count     = flags.Int("n", 1000, "echo: round trips")
	tty       = flags.Bool("tty", false, "with a terminal; echo waits for a line before it types")
	stdin     = flags.Bool("stdin", false, "hold, exec: with stdin")
	port      = flags.Int("port", 0, "forward: the port in the pod")
	unread    = flags.Bool("unread", false, "hold: never read what comes")
	control   = flags.String("control", "", "table: POST URL/url answers a request (JSON) with a stream URL")
	container = flags.String("id", "", "table: the container's id")
	long      = flags.Bool("all", false, "table: the long one")
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// report prints one line of JSON.
func report(values map[string]any) { check(json.NewEncoder(os.Stdout).Encode(values)) }

func main() {
	log.SetFlags(0)
	commands := map[string]func(args []string){
		"transfer": func(args []string) { transfer(one(args)) }, // bytes through an exec session, lean client
		"echo":     func(args []string) { echo(one(args)) },     // round trips of one byte, lean client
		"forward":  func(args []string) { forward(one(args)) },  // bytes through a port-forward, lean client
		"exec":     func(args []string) { execute(one(args)) },  // one session through client-go: our stdio is its
		"hold":     func([]string) { hold() },                   // a session for each URL on stdin, until that ends
		"first":    func([]string) { first() },                  // times to the first byte, of each line of stdin
		"attach":   func(args []string) { attach(one(args)) },   // reads conmon's attach socket to its end
		"target":   func([]string) { serveTarget() },            // the TCP server behind port-forwards
		"table":    func([]string) { table() },                  // cases through client-go
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: driver transfer|echo|forward|exec|hold|first|attach|target|table [flags] [URL]")
		flags.PrintDefaults()
		os.Exit(2)
	}
	check(flags.Parse(os.Args[2:]))
	commands[os.Args[1]](flags.Args())
}

func one(args []string) string {
	if len(args) != 1 {
		log.Fatalf("one URL wanted, got %q", args)
	}
	return args[0]
}
