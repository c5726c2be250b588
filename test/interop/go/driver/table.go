// The case table: every combination of transport, terminal, stdin, exit code and size, and some cases of their own.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/remotecommand"
)

const cellLimit = 10 * time.Second

// cell is one case: what runs, what is sent, and what must come back.
type cell struct {
	name, transport string
	cmd             []string
	tty             bool
	in              io.Reader // nil: no stdin
	sizes           remotecommand.TerminalSizeQueue
	stdout, stderr  []byte
	anyOutput       bool // a terminal may or may not have echoed what was typed
	code            int
	fails           bool // any failure that is not an exit code
}

func table() {
	bad := 0
	for _, t := range strings.Split(*transport, ",") {
		release := make(chan struct{})
		for _, c := range append(combinations(t, release), special(t)...) {
			if !c.run() {
				bad++
			}
		}
		close(release)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

func shell(format string, args ...any) []string {
	return []string{"sh", "-c", fmt.Sprintf(format, args...)}
}

// combinations: stdin is none; open, and silent; exact, the process reads just what is sent; eof, it reads to the
// half-close; early, it exits while the client sends.
func combinations(transport string, release chan struct{}) []cell {
	codes, sizes := []int{7}, []int{0, 1 << 20}
	if *long {
		codes, sizes = []int{0, 7, 255}, []int{0, 1, 4096, 65537, 1 << 20, 12_000_000}
	}
	var cells []cell
	for _, tty := range []bool{false, true} {
		for _, stdin := range []string{"none", "open", "exact", "eof", "early"} {
			for _, code := range codes {
				for _, n := range sizes {
					// A terminal has no end of input, and WebSocket before v5 no half-close.
					if stdin == "eof" && (tty || transport == "ws") || stdin == "early" && n == 0 {
						continue
					}
					c := combination(tty, stdin, code, n)
					c.name = fmt.Sprintf("%s/tty=%v/stdin=%s/exit=%d/size=%d", transport, tty, stdin, code, n)
					c.transport = transport
					if stdin == "open" || stdin == "exact" {
						c.in = &heldOpen{c.in, release}
					}
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

func combination(tty bool, stdin string, code, n int) cell {
	c := cell{tty: tty, code: code}
	switch stdin {
	case "none", "open":
		c.cmd = shell("head -c %d /dev/zero; exit %d", n, code)
		c.stdout = make([]byte, n)
		if stdin == "open" {
			c.in = strings.NewReader("")
		}
	case "exact", "eof":
		c.stdout = pattern(n)
		c.in = bytes.NewReader(c.stdout)
		c.cmd = shell("head -c %d; exit %d", n, code)
		if stdin == "eof" {
			c.cmd = shell("cat; exit %d", code)
		}
		if tty {
			c.cmd = shell("stty raw -echo; echo R; head -c %d; exit %d", n, code)
			c.stdout = append([]byte("R\n"), c.stdout...)
		}
	case "early":
		c.in = bytes.NewReader(make([]byte, n))
		c.cmd = shell("exit %d", code)
		c.anyOutput = tty
	}
	return c
}

func special(transport string) []cell {
	return []cell{
		{name: transport + "/both streams", transport: transport, cmd: shell("echo out; echo err >&2"), stdout: []byte("out\n"), stderr: []byte("err\n")},
		{name: transport + "/a signal", transport: transport, cmd: shell("kill -9 $$"), code: 137},
		{name: transport + "/no such command", transport: transport, cmd: []string{"no-such-command"}, fails: true},
		{name: transport + "/first size", transport: transport, tty: true, sizes: &sizes{{Width: 81, Height: 25}},
			cmd: shell(`while [ "$(stty size 2>&1)" != "25 81" ]; do sleep 0.02; done; stty size`), stdout: []byte("25 81\r\n")},
		{name: transport + "/later size", transport: transport, tty: true, sizes: &sizes{{Width: 80, Height: 24}, {Width: 120, Height: 50}},
			cmd: shell(`while [ "$(stty size 2>&1)" != "50 120" ]; do sleep 0.02; done; stty size`), stdout: []byte("50 120\r\n")},
	}
}

// run reports one line; it is true when bytes, exit code and error are as they must be.
func (c *cell) run() bool {
	out := &output{ready: make(chan struct{})}
	var errOut bytes.Buffer
	if c.tty && c.in != nil && bytes.HasPrefix(c.stdout, []byte("R\n")) {
		c.in = &afterReady{c.in, out.ready}
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), cellLimit)
	defer cancel()
	err := c.stream(ctx, out, &errOut)
	code, text := outcome(err)
	got := out.buf.Bytes()
	ok := (c.anyOutput || bytes.Equal(got, c.stdout)) && bytes.Equal(errOut.Bytes(), c.stderr) && code == c.code && text == ""
	if c.fails {
		ok = err != nil
	}
	values := map[string]any{"cell": c.name, "ok": ok, "bytes": len(got), "exit": code, "ms": time.Since(begin).Milliseconds()}
	if text != "" {
		values["error"] = text
	}
	if !ok {
		values["wantBytes"], values["wantExit"], values["stderr"] = len(c.stdout), c.code, errOut.String()
	}
	report(values)
	return ok
}

func (c *cell) stream(ctx context.Context, out, errOut io.Writer) error {
	url, err := askURL(execRequest{Kind: "exec", ID: *container, Cmd: c.cmd, TTY: c.tty, Stdin: c.in != nil, Stdout: true, Stderr: !c.tty})
	if err != nil {
		return err
	}
	e, err := executor(url, c.transport)
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdin: c.in, Stdout: out, Tty: c.tty, TerminalSizeQueue: c.sizes}
	if !c.tty {
		options.Stderr = errOut
	}
	return e.StreamWithContext(ctx, options)
}

// pattern is a sequence in which a gap or a repetition shows.
func pattern(n int) []byte {
	b, x := make([]byte, n), uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// heldOpen gives its data and then blocks until it is released.
type heldOpen struct {
	data    io.Reader
	release chan struct{}
}

func (h *heldOpen) Read(p []byte) (int, error) {
	if n, err := h.data.Read(p); err != io.EOF {
		return n, err
	}
	<-h.release
	return 0, io.EOF
}

// output keeps what came and tells when the first byte did.
type output struct {
	buf   bytes.Buffer // not embedded: its ReadFrom would bypass Write
	ready chan struct{}
	once  sync.Once
}

func (o *output) Write(p []byte) (int, error) {
	o.once.Do(func() { close(o.ready) })
	return o.buf.Write(p)
}

// afterReady holds stdin back until the terminal is raw.
type afterReady struct {
	io.Reader
	ready chan struct{}
}

func (a *afterReady) Read(p []byte) (int, error) {
	<-a.ready
	return a.Reader.Read(p)
}

// sizes hands out its sizes 50 ms apart and then none.
type sizes []remotecommand.TerminalSize

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	time.Sleep(50 * time.Millisecond)
	size := (*s)[0]
	*s = (*s)[1:]
	return &size
}
