// Exec through the OCI runtime: a detached process on pipes or on a terminal that comes over a console socket.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// start runs the OCI runtime to its end and returns the process that it left us. A nil in stdio is /dev/null.
func start(id string, cmd []string, stdio [3]*os.File, flags ...string) (*os.Process, error) {
	dir, err := os.MkdirTemp("", "yardstick-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pidFile, logFile := filepath.Join(dir, "pid"), filepath.Join(dir, "log")
	args := []string{"--log", logFile}
	if ociRuntime.root != "" {
		args = append(args, "--root", ociRuntime.root)
	}
	args = append(args, "exec", "--detach", "--pid-file", pidFile)
	args = append(append(append(args, flags...), id), cmd...)
	c := exec.Command(ociRuntime.path, args...)
	// One by one: a nil *os.File would not be a nil io.Reader.
	if stdio[0] != nil {
		c.Stdin = stdio[0]
	}
	if stdio[1] != nil {
		c.Stdout = stdio[1]
	}
	if stdio[2] != nil {
		c.Stderr = stdio[2]
	}
	if err := c.Run(); err != nil {
		text, _ := os.ReadFile(logFile)
		return nil, fmt.Errorf("%s exec: %w: %s", filepath.Base(ociRuntime.path), err, strings.TrimSpace(string(text)))
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// wait returns the exit status in the type that the library turns into a status message.
func wait(p *os.Process) error {
	state, err := p.Wait()
	if err != nil {
		return err
	}
	ws := state.Sys().(syscall.WaitStatus)
	code := ws.ExitStatus()
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

func execPipes(id string, cmd []string, in io.Reader, out, errOut io.WriteCloser) error {
	var theirs [3]*os.File
	closeTheirs := func() {
		for _, f := range theirs {
			if f != nil {
				f.Close()
			}
		}
	}
	var stdin *os.File
	var copies sync.WaitGroup
	if in != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		theirs[0], stdin = r, w
		defer stdin.Close()
	}
	for i, to := range []io.WriteCloser{out, errOut} {
		if to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			closeTheirs()
			return err
		}
		theirs[1+i] = w
		copies.Go(func() {
			pump(to, r)
			to.Close()
			r.Close() // a client that is gone ends the process by SIGPIPE
		})
	}
	p, err := start(id, cmd, theirs)
	closeTheirs()
	if err != nil {
		copies.Wait()
		return err
	}
	if in != nil {
		go func() {
			pump(stdin, in)
			stdin.Close()
		}()
	}
	copies.Wait()
	return wait(p)
}

func execTerminal(id string, cmd []string, in io.Reader, out io.WriteCloser, sizes <-chan remotecommand.TerminalSize) error {
	dir, err := os.MkdirTemp("", "yardstick-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "console")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close()
	type received struct {
		terminal *os.File
		err      error
	}
	terminals := make(chan received, 1)
	go func() {
		terminal, err := receiveTerminal(l)
		terminals <- received{terminal, err}
	}()
	p, err := start(id, cmd, [3]*os.File{}, "--tty", "--console-socket", path)
	if err != nil {
		return err
	}
	r := <-terminals
	if r.err != nil {
		return r.err
	}
	go func() {
		for size := range sizes {
			resize(r.terminal, size)
		}
	}()
	if in != nil {
		go pump(r.terminal, in) // a terminal has no end of input: nothing is closed after this
	}
	pump(out, r.terminal)
	out.Close()
	r.terminal.Close()
	return wait(p)
}

// resize does not use File.Fd, which would make the terminal blocking.
func resize(terminal *os.File, size remotecommand.TerminalSize) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

func receiveTerminal(l *net.UnixListener) (*os.File, error) {
	l.SetDeadline(time.Now().Add(30 * time.Second))
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	name, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(name, control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) == 0 {
		return nil, errors.Join(errors.New("console socket: no terminal"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errors.New("console socket: no terminal"), err)
	}
	unix.CloseOnExec(fds[0])
	// Non-blocking, so that a session waits in the poller and not in a thread.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}
