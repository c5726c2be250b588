// Command monitorclient drives a monitor through conmon-rs's own Go client, as CRI-O does: it starts the monitor, then
// one container from its creation to its exit, and prints what it got as one line of JSON. The container must greet with
// lines "ready" until it has read a line, answer that with "got LINE" and exit with 3.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/containers/conmon-rs/pkg/client"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

var (
	monitorPath = flag.String("monitor", "", "the monitor's program")
	runtimePath = flag.String("runtime", "", "OCI runtime")
	root        = flag.String("root", "", "its state directory")
	dir         = flag.String("dir", "", "an empty directory for the monitor and the container's files")
	bundle      = flag.String("bundle", "", "the container's bundle")
	id          = flag.String("id", "", "the container's id")
	terminal    = flag.Bool("terminal", false, "the bundle wants a terminal")
)

var ctx = context.Background()

func must(err error, step string) {
	if err != nil {
		log.Fatalf("%s: %v", step, err)
	}
}

// output collects what came, and is closed by the client at the end.
type output struct {
	mutex sync.Mutex
	buf   bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buf.Write(p)
}

func (o *output) Close() error { return nil }

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buf.String()
}

func waitFor(what string, condition func() bool) {
	for range 1000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatalf("wait for %s: not within 10 s", what)
}

func startContainer() error {
	text, err := exec.Command(*runtimePath, "--root", *root, "start", *id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// webSocketExec runs a command through the URL of ServeExec.
func webSocketExec(c *client.ConmonClient, command ...string) (string, error) {
	served, err := c.ServeExecContainer(ctx, &client.ServeExecContainerConfig{ID: *id, Command: command, Stdout: true, Stderr: true})
	must(err, "serve exec")
	u, err := url.Parse(served.URL)
	must(err, "serve exec")
	e, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: u.Host}, "GET", served.URL)
	must(err, "serve exec")
	var out bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
	return out.String(), err
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	config := client.NewConmonServerConfig(*runtimePath, *root, *dir)
	config.ConmonServerPath = *monitorPath
	config.LogDriver = client.LogDriverStdout
	config.CgroupManager = client.CgroupManagerCgroupfs
	config.ClientLogger = logrus.New()
	config.ClientLogger.SetOutput(io.Discard)
	config.Stdout, config.Stderr = os.Stderr, os.Stderr
	c, err := client.New(config)
	must(err, "start the monitor")
	version, err := c.Version(ctx, &client.VersionConfig{})
	must(err, "version")

	logPath, exitPath := *dir+"/log", *dir+"/exit"
	created, err := c.CreateContainer(ctx, &client.CreateContainerConfig{
		ID: *id, BundlePath: *bundle, Terminal: *terminal, Stdin: true, ExitPaths: []string{exitPath},
		LogDrivers: []client.ContainerLogDriver{{Type: client.LogDriverTypeContainerRuntimeInterface, Path: logPath}},
	})
	must(err, "create container")

	var stdout, stderr output
	stdinRead, stdin := io.Pipe()
	attached := make(chan error, 1)
	go func() {
		attached <- c.AttachContainer(ctx, &client.AttachConfig{
			ID: *id, SocketPath: *dir + "/attach/socket", Tty: *terminal, ContainerStdin: true, StopAfterStdinEOF: true,
			Streams: client.AttachStreams{Stdin: &client.In{ReadCloser: stdinRead}, Stdout: &client.Out{WriteCloser: &stdout},
				Stderr: &client.Out{WriteCloser: &stderr}},
			PreAttachFunc: startContainer,
		})
	}()
	waitFor("the attached container's output", func() bool { return strings.Contains(stdout.String(), "ready") })

	synced, err := c.ExecSyncContainer(ctx, &client.ExecSyncConfig{ID: *id, Command: []string{"sh", "-c", "echo out; echo err >&2; exit 5"}, Timeout: 20})
	must(err, "exec sync")
	late, err := c.ExecSyncContainer(ctx, &client.ExecSyncConfig{ID: *id, Command: []string{"sleep", "100"}, Timeout: 1})
	must(err, "exec sync with a timeout")
	_, missing := c.ExecSyncContainer(ctx, &client.ExecSyncConfig{ID: "no-such-container", Command: []string{"true"}})
	served, err := webSocketExec(c, "echo", "served")
	must(err, "exec over WebSocket")
	must(os.Rename(logPath, logPath+".1"), "rename the log")
	must(c.ReopenLogContainer(ctx, &client.ReopenLogContainerConfig{ID: *id}), "reopen the log")
	_, reopened := os.Stat(logPath)

	_, err = stdin.Write([]byte("world\n"))
	must(err, "write to stdin")
	must(<-attached, "attach")
	waitFor("the exit file", func() bool { _, err := os.Stat(exitPath); return err == nil })
	exit, err := os.ReadFile(exitPath)
	must(err, "read the exit file")
	pid := c.PID()
	must(c.Shutdown(), "shut down")

	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"version": version.Version, "monitorPid": pid, "containerPid": created.PID,
		"attachOut": stdout.String(), "attachErr": stderr.String(),
		"syncOut": string(synced.Stdout), "syncErr": string(synced.Stderr), "syncExit": synced.ExitCode,
		"timedOut": late.TimedOut, "missing": fmt.Sprint(missing), "served": served, "reopened": reopened == nil, "exit": string(exit),
	}), "report")
}
