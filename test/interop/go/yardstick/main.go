// Command yardstick is a streaming server on k8s.io/cri-streaming, the Go library that containerd and CRI-O serve
// exec and port-forward with: the rival that benchmarks run beside holdfast, and a reference for how clients fare.
//
// It prints one line of JSON, {"control":URL,"pid":N}, and ends when its stdin does. POST /url on the control address,
// with a request below as JSON, answers with one stream URL. Exec goes through the OCI runtime, as a containerd shim
// does it; attach is not served.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// What containerd copies with.
const bufferSize = 32 << 10

var ociRuntime struct{ path, root string }

// request is what the control address takes.
type request struct {
	Kind   string   `json:"kind"` // exec or portforward
	ID     string   `json:"id"`
	Cmd    []string `json:"cmd"`
	TTY    bool     `json:"tty"`
	Stdin  bool     `json:"stdin"`
	Stdout bool     `json:"stdout"`
	Stderr bool     `json:"stderr"`
}

type backend struct{}

func (backend) Exec(_ context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize) error {
	if tty {
		return execTerminal(id, cmd, in, out, sizes)
	}
	return execPipes(id, cmd, in, out, errOut)
}

func (backend) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.New("attach is not served")
}

// PortForward copies both ways; like containerd it gives the second direction a moment after the first has ended.
func (backend) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	ended := make(chan error, 2)
	go func() { ended <- pump(conn, stream) }()
	go func() { ended <- pump(stream, conn) }()
	err = <-ended
	select {
	case second := <-ended:
		err = errors.Join(err, second)
	case <-time.After(time.Second):
	}
	return err
}

// pump copies through a buffer, never through ReadFrom or WriteTo.
func pump(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, bufferSize))
	return err
}

func streamURL(s streaming.Server, r request) (string, error) {
	switch r.Kind {
	case "exec":
		response, err := s.GetExec(&runtimeapi.ExecRequest{ContainerId: r.ID, Cmd: r.Cmd, Tty: r.TTY, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr})
		return response.GetUrl(), err
	case "portforward":
		response, err := s.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: r.ID})
		return response.GetUrl(), err
	}
	return "", fmt.Errorf("unknown kind %q", r.Kind)
}

func serveControl(s streaming.Server, l net.Listener) {
	http.HandleFunc("POST /url", func(w http.ResponseWriter, r *http.Request) {
		var wanted request
		err := json.NewDecoder(r.Body).Decode(&wanted)
		url := ""
		if err == nil {
			url, err = streamURL(s, wanted)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, url)
	})
	log.Fatal(http.Serve(l, nil))
}

func listen() net.Listener {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func main() {
	log.SetFlags(0)
	flag.StringVar(&ociRuntime.path, "runtime", "runc", "OCI runtime")
	flag.StringVar(&ociRuntime.root, "root", "", "its state directory, its default if empty")
	flag.Parse()
	// What the OCI runtime leaves behind becomes our child, and its exit status ours to read.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		log.Fatal(err)
	}
	// The library binds by itself and tells nobody its port, so a free one is chosen here.
	probe := listen()
	config := streaming.DefaultConfig
	config.Addr = probe.Addr().String()
	probe.Close()
	s, err := streaming.NewServer(config, backend{})
	if err != nil {
		log.Fatal(err)
	}
	control := listen()
	go serveControl(s, control)
	go func() { log.Fatal(s.Start(true)) }()
	for { // until the library listens
		c, err := net.Dial("tcp4", config.Addr)
		if err == nil {
			c.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"control": "http://" + control.Addr().String(), "pid": os.Getpid()})
	io.Copy(io.Discard, os.Stdin)
}
