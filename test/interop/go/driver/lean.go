// The lean clients: one exec session, or one connection of a port-forward, over SPDY or WebSocket.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/moby/spdystream/spdy"
)

// Channels of a session, by their numbers in WebSocket messages.
const (
	toStdin byte = iota
	fromStdout
	fromStderr
	fromError
)

const chunk = 32 << 10

// session is one exec session.
type session interface {
	// send writes to the process's stdin, at most chunk bytes.
	send(p []byte) error
	// receive takes the next message, keeps its first bytes and discards the others. n is its whole length.
	receive(keep []byte) (channel byte, n int, err error)
	close()
}

func open(address string, withStdin bool) (session, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if *transport == "ws" {
		return openWebSocket(u)
	}
	kinds := []string{"error", "stdout"}
	if withStdin {
		kinds = append(kinds, "stdin")
	}
	if *tty {
		kinds = append(kinds, "resize")
	}
	var streams []http.Header
	for _, kind := range kinds {
		streams = append(streams, http.Header{"Streamtype": {kind}})
	}
	c, err := openSPDY(u, "v4.channel.k8s.io", streams)
	if err != nil {
		return nil, err
	}
	return &spdySession{c}, nil
}

// ---- WebSocket

// webSocketSession masks with a key of zeros: that spares the client the work, not the server.
type webSocketSession struct {
	conn    net.Conn
	in      *bufio.Reader
	frame   []byte
	channel byte // of a message whose later frames are to come
}

// An unfragmented binary frame with a long length, a mask and the channel's byte.
const webSocketHead = 2 + 2 + 4 + 1

func openWebSocket(u *url.URL) (session, error) {
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n", u.RequestURI(), u.Host)
	s := &webSocketSession{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), frame: make([]byte, webSocketHead+chunk)}
	if err := upgraded(s.in); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// upgraded reads the answer to an upgrade request.
func upgraded(in *bufio.Reader) error {
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text))
	}
	return nil
}

func (s *webSocketSession) send(p []byte) error {
	n := 1 + len(p)
	head := webSocketHead
	copy(s.frame[head:], p)
	s.frame[head-1] = toStdin
	start := 0
	if n < 126 { // a short length has no room for more bytes
		start = 2
		s.frame[start], s.frame[start+1] = 0x82, 0x80|byte(n)
	} else {
		s.frame[0], s.frame[1] = 0x82, 0x80|126
		binary.BigEndian.PutUint16(s.frame[2:], uint16(n))
	}
	clear(s.frame[head-5 : head-1])
	_, err := s.conn.Write(s.frame[start : head+len(p)])
	return err
}

func (s *webSocketSession) receive(keep []byte) (byte, int, error) {
	for {
		first, n, err := s.header()
		if err != nil {
			return 0, 0, err
		}
		switch opcode := first & 0xf; {
		case opcode == 8:
			text := make([]byte, min(n, 125))
			io.ReadFull(s.in, text)
			if n < 2 || binary.BigEndian.Uint16(text) != 1000 {
				return 0, 0, fmt.Errorf("closed: %q", text)
			}
			return 0, 0, io.EOF
		case opcode > 8: // ping or pong
			_, err = s.in.Discard(n)
		case n > 0:
			if opcode != 0 {
				s.channel, err = s.in.ReadByte()
				n--
			}
			if err == nil {
				err = take(s.in, keep, n)
			}
			return s.channel, n, err
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// header takes the head of the next frame.
func (s *webSocketSession) header() (first byte, n int, err error) {
	var head [8]byte
	if _, err := io.ReadFull(s.in, head[:2]); err != nil {
		return 0, 0, err
	}
	first, n = head[0], int(head[1]&0x7f)
	if n == 126 {
		_, err = io.ReadFull(s.in, head[:2])
		n = int(binary.BigEndian.Uint16(head[:]))
	} else if n == 127 {
		_, err = io.ReadFull(s.in, head[:8])
		n = int(binary.BigEndian.Uint64(head[:]))
	}
	return first, n, err
}

func (s *webSocketSession) close() { s.conn.Close() }

// take reads n bytes, keeps the first ones and discards the others.
func take(in *bufio.Reader, keep []byte, n int) error {
	kept, err := io.ReadFull(in, keep[:min(n, len(keep))])
	if err != nil {
		return err
	}
	_, err = in.Discard(n - kept)
	return err
}

// ---- SPDY

// spdyConnection has the given streams as 1, 3, 5 …, all accepted by the server.
type spdyConnection struct {
	conn    net.Conn
	in      *bufio.Reader
	writing sync.Mutex
	frame   []byte
	streams int
}

func openSPDY(u *url.URL, protocol string, streams []http.Header) (*spdyConnection, error) {
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	c := &spdyConnection{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), frame: make([]byte, 8+chunk), streams: len(streams)}
	if err := c.start(u, protocol, streams); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *spdyConnection) start(u *url.URL, protocol string, streams []http.Header) error {
	fmt.Fprintf(c.conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: %s\r\n\r\n", u.RequestURI(), u.Host, protocol)
	if err := upgraded(c.in); err != nil {
		return err
	}
	var frames bytes.Buffer
	framer, err := spdy.NewFramer(&frames, nil)
	if err != nil {
		return err
	}
	for i, headers := range streams {
		if err := framer.WriteFrame(&spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: headers}); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(frames.Bytes()); err != nil {
		return err
	}
	for replies := 0; replies < len(streams); {
		kind, _, n, err := c.header()
		if err != nil {
			return err
		}
		if kind == 2 {
			replies++
		}
		if kind == 3 {
			return errors.New("stream reset")
		}
		if _, err := c.in.Discard(n); err != nil {
			return err
		}
	}
	return nil
}

// header takes the head of the next frame: kind 0 is data of a stream, others are control frames. n bytes follow it.
func (c *spdyConnection) header() (kind uint16, stream uint32, n int, err error) {
	head, err := c.in.Peek(8)
	if err != nil {
		return 0, 0, 0, err
	}
	first := binary.BigEndian.Uint32(head)
	n = int(binary.BigEndian.Uint32(head[4:]) & 0xffffff)
	c.in.Discard(8)
	if first&0x80000000 != 0 {
		return uint16(first), 0, n, nil
	}
	return 0, first, n, nil
}

// data takes the next data frame, keeps its first bytes and discards the others.
func (c *spdyConnection) data(keep []byte) (stream uint32, n int, err error) {
	for {
		kind, stream, n, err := c.header()
		if err != nil {
			return 0, 0, err
		}
		if kind == 7 {
			return 0, 0, io.EOF
		}
		if kind == 0 {
			return stream, n, take(c.in, keep, n)
		}
		if _, err := c.in.Discard(n); err != nil {
			return 0, 0, err
		}
	}
}

func (c *spdyConnection) write(stream uint32, p []byte, end bool) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	binary.BigEndian.PutUint32(c.frame, stream)
	binary.BigEndian.PutUint32(c.frame[4:], uint32(len(p)))
	if end {
		c.frame[4] = 1
	}
	_, err := c.conn.Write(c.frame[:8+copy(c.frame[8:], p)])
	return err
}

// spdySession has error, stdout and stdin as streams 1, 3 and 5.
type spdySession struct{ *spdyConnection }

func (s *spdySession) send(p []byte) error { return s.write(5, p, false) }

func (s *spdySession) receive(keep []byte) (byte, int, error) {
	stream, n, err := s.data(keep)
	if stream == 1 {
		return fromError, n, err
	}
	return fromStdout, n, err
}

func (s *spdySession) close() { s.conn.Close() }

// openForward opens one connection of a port-forward, whose error and data are streams 1 and 3.
func openForward(address string) (*spdyConnection, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	number := strconv.Itoa(*port)
	c, err := openSPDY(u, "portforward.k8s.io", []http.Header{
		{"Streamtype": {"error"}, "Port": {number}, "Requestid": {"0"}},
		{"Streamtype": {"data"}, "Port": {number}, "Requestid": {"0"}},
	})
	if err != nil {
		return nil, err
	}
	return c, c.write(1, nil, true)
}
