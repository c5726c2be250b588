// What the lean clients do: move bytes, type, hold sessions open.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"sort"
	"strings"
	"syscall"
	"time"
)

func ownCPU() float64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// timed runs one transfer of *size bytes and reports it.
func timed(move func() (int64, error)) {
	cpu, begin := ownCPU(), time.Now()
	moved, err := move()
	check(err)
	if moved != *size {
		log.Fatalf("%d bytes of %d", moved, *size)
	}
	report(map[string]any{"seconds": time.Since(begin).Seconds(), "clientCpu": ownCPU() - cpu})
}

// pour sends *size bytes in chunks.
func pour(send func(p []byte) error) error {
	zeros := make([]byte, chunk)
	for left := *size; left > 0; left -= chunk {
		if err := send(zeros[:min(left, chunk)]); err != nil {
			return err
		}
	}
	return nil
}

// transfer ends with the session, which the process ends: it writes, or reads, *size bytes.
func transfer(address string) {
	s, err := open(address, *upload)
	check(err)
	defer s.close()
	timed(func() (int64, error) {
		if *upload {
			go pour(s.send)
		}
		var got int64
		var status [1024]byte
		ended := false
		for {
			channel, n, err := s.receive(status[:])
			if err == io.EOF && ended {
				break
			}
			if err != nil {
				return got, err
			}
			if channel == fromStdout {
				got += int64(n)
			}
			// A lone blank is only a promise of a status to come.
			if channel == fromError && n > 1 {
				if !strings.Contains(string(status[:min(n, len(status))]), `"Success"`) {
					return got, errors.New(string(status[:min(n, len(status))]))
				}
				ended = true
			}
		}
		if *upload {
			return *size, nil
		}
		return got, nil
	})
}

// echo types one byte at a time; the process sends each back. A terminal's process says first that it is ready.
func echo(address string) {
	s, err := open(address, true)
	check(err)
	defer s.close()
	var b [1]byte
	key := func() {
		for {
			channel, n, err := s.receive(b[:])
			check(err)
			if channel == fromStdout && n > 0 {
				return
			}
		}
	}
	if *tty {
		for b[0] != 'R' {
			key()
		}
	}
	var took []float64
	for i := range *count + *count/10 {
		begin := time.Now()
		check(s.send([]byte{'x'}))
		for key(); b[0] != 'x'; key() {
		}
		if i >= *count/10 {
			took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
		}
	}
	if *tty {
		s.send([]byte{3}) // a terminal has no end of input: interrupt
		for err == nil {
			_, _, err = s.receive(nil)
		}
	}
	sort.Float64s(took)
	report(map[string]any{"p50": took[len(took)/2], "p99": took[len(took)*99/100]})
}

// hold opens a session for each URL on stdin, answers each with a line, and keeps them until stdin ends.
func hold() {
	var sessions []session
	urls := bufio.NewScanner(os.Stdin)
	for urls.Scan() {
		s, err := open(urls.Text(), *stdin)
		check(err)
		sessions = append(sessions, s)
		if *stdin && !*unread {
			check(s.send([]byte("x")))
			for channel, n := byte(0), 0; channel != fromStdout || n == 0; {
				channel, n, err = s.receive(nil)
				check(err)
			}
		}
		fmt.Println("open")
	}
	for _, s := range sessions {
		s.close()
	}
}

// first answers each line of stdin with the milliseconds to the first byte of output: of a session, if the line is a
// URL, else of a command, whose words are the line's.
func first() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http") {
			fmt.Println(firstOfSession(lines.Text()))
		} else {
			fmt.Println(firstOfCommand(strings.Fields(lines.Text())))
		}
	}
}

func firstOfSession(address string) float64 {
	begin := time.Now()
	s, err := open(address, false)
	check(err)
	defer s.close()
	took := 0.0
	for {
		channel, n, err := s.receive(nil)
		if took == 0 && channel == fromStdout && n > 0 {
			took = milliseconds(begin)
		}
		if took > 0 && (err == io.EOF || channel == fromError) {
			return took
		}
		check(err)
	}
}

func firstOfCommand(words []string) float64 {
	c := exec.Command(words[0], words[1:]...)
	out, err := c.StdoutPipe()
	check(err)
	begin := time.Now()
	check(c.Start())
	_, err = io.ReadFull(out, make([]byte, 1))
	check(err)
	took := milliseconds(begin)
	io.Copy(io.Discard, out)
	check(c.Wait())
	return took
}

func milliseconds(begin time.Time) float64 { return float64(time.Since(begin).Nanoseconds()) / 1e6 }

// attach reads conmon's attach socket, whose packets are a byte that names the stream and output, until the connection
// or the container ends.
func attach(path string) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	check(err)
	fmt.Println("attached")
	var total int64
	packet := make([]byte, 64<<10)
	for {
		n, err := c.Read(packet)
		if n > 0 && packet[0] != 0 {
			total += int64(n - 1)
		}
		if err != nil || n == 0 || packet[0] == 0 {
			break
		}
	}
	report(map[string]any{"bytes": total})
}

// ---- port-forward

// serveTarget answers one order per connection: 'D' and a length sends that many bytes, 'U' and a length reads that
// many and answers one byte. It ends when stdin does.
func serveTarget() {
	l := listenLocal()
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			check(err)
			go answer(c)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func answer(c io.ReadWriteCloser) {
	defer c.Close()
	var order [9]byte
	if _, err := io.ReadFull(c, order[:]); err != nil {
		return
	}
	left := int64(binary.BigEndian.Uint64(order[1:]))
	buf := make([]byte, 64<<10)
	if order[0] == 'U' {
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(c, left), buf)
		c.Write([]byte{'.'})
		return
	}
	for left > 0 {
		n, err := c.Write(buf[:min(left, int64(len(buf)))])
		if err != nil {
			return
		}
		left -= int64(n)
	}
}

func forward(address string) {
	c, err := openForward(address)
	check(err)
	defer c.conn.Close()
	order := append([]byte{'D'}, binary.BigEndian.AppendUint64(nil, uint64(*size))...)
	wanted := *size
	if *upload {
		order[0], wanted = 'U', 1
	}
	timed(func() (int64, error) {
		if err := c.write(3, order, false); err != nil {
			return 0, err
		}
		if *upload {
			go pour(func(p []byte) error { return c.write(3, p, false) })
		}
		var text [1024]byte
		var got int64
		for got < wanted {
			stream, n, err := c.data(text[:])
			if err != nil {
				return got, err
			}
			if stream == 1 && n > 0 {
				return got, errors.New(string(text[:min(n, len(text))]))
			}
			if stream == 3 {
				got += int64(n)
			}
		}
		if *upload {
			return *size, nil
		}
		return got, nil
	})
}
