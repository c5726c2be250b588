// Sessions through client-go, as kubectl and every other Go program have them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

func executor(address, transport string) (remotecommand.Executor, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{Host: u.Host}
	switch transport {
	case "spdy":
		return remotecommand.NewSPDYExecutor(config, "POST", u)
	case "ws":
		return remotecommand.NewWebSocketExecutorForProtocols(config, "GET", address, "v4.channel.k8s.io")
	case "ws5":
		return remotecommand.NewWebSocketExecutor(config, "GET", address)
	}
	return nil, fmt.Errorf("no executor for transport %q", transport)
}

// outcome splits client-go's error into an exit code and anything else.
func outcome(err error) (int, string) {
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code, ""
	}
	if err != nil {
		return -1, err.Error()
	}
	return 0, ""
}

// execute runs one session on our own stdio; the last line of stderr tells its outcome.
func execute(address string) {
	e, err := executor(address, *transport)
	check(err)
	options := remotecommand.StreamOptions{Stdout: os.Stdout, Tty: *tty}
	if *stdin {
		options.Stdin = os.Stdin
	}
	code, text := outcome(e.StreamWithContext(context.Background(), options))
	check(json.NewEncoder(os.Stderr).Encode(map[string]any{"exit": code, "error": text}))
}

// execRequest is what the control address takes.
type execRequest struct {
	Kind   string   `json:"kind"`
	ID     string   `json:"id"`
	Cmd    []string `json:"cmd"`
	TTY    bool     `json:"tty"`
	Stdin  bool     `json:"stdin"`
	Stdout bool     `json:"stdout"`
	Stderr bool     `json:"stderr"`
}

func askURL(r execRequest) (string, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	response, err := http.Post(*control+"/url", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	text = bytes.TrimSpace(text)
	if response.StatusCode != http.StatusOK {
		return "", errors.New(string(text))
	}
	return string(text), nil
}

func listenLocal() net.Listener {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(err)
	return l
}
