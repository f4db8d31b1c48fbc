//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// run runs the command and forwards its standard streams and signals. At its end it kills all remaining processes. It
// returns the exit status.
func run(j *job, line *console) (int, error) {
	s, err := openStreams(j, line)
	if err != nil {
		return 0, err
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if s.terminal != nil {
		attributes.Setctty = true
		for fd, is := range j.Terminal {
			if is {
				attributes.Ctty = fd
			}
		}
	}
	if j.UID != 0 || j.GID != 0 {
		attributes.Credential = &syscall.Credential{Uid: j.UID, Gid: j.GID, Groups: j.Groups}
	}
	process, err := os.StartProcess(j.Command[0], j.Command, &os.ProcAttr{
		Dir: j.Folder, Env: j.Environment, Files: s.child[:], Sys: attributes,
	})
	if err != nil {
		var fault *os.PathError
		if errors.As(err, &fault) {
			return 0, fmt.Errorf("%s: %w", fault.Path, fault.Err)
		}
		return 0, err
	}
	s.closeChild()
	go s.handleFrames(line, process.Pid)
	status := reap(process.Pid)
	_ = syscall.Kill(-1, syscall.SIGKILL)
	s.copying.Wait()
	return status, nil
}

// reap waits for child and meanwhile reaps orphaned processes. It returns child's exit status, or 128 + the number of the
// signal that ended it.
func reap(child int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR || pid != child && err == nil:
		case err != nil:
			return 1
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// streams holds both ends of the command's standard streams.
type streams struct {
	child    [3]*os.File
	input    *os.File
	terminal *os.File // master of the pseudo-terminal; nil without one
	copying  sync.WaitGroup
}

func openStreams(j *job, line *console) (*streams, error) {
	s := &streams{}
	var childTerminal *os.File
	if j.Terminal[0] || j.Terminal[1] || j.Terminal[2] {
		var err error
		if s.terminal, childTerminal, err = openTerminal(j); err != nil {
			return nil, err
		}
		kind := byte('1')
		if !j.Terminal[1] {
			kind = '2'
		}
		s.copy(s.terminal, line, kind)
	}
	for fd, is := range j.Terminal {
		if is {
			s.child[fd] = childTerminal
			continue
		}
		if fd == 0 && j.Given {
			s.child[fd] = j.file
			continue
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if fd == 0 {
			s.child[fd], s.input = reader, writer
		} else {
			s.child[fd] = writer
			s.copy(reader, line, strconv.Itoa(fd)[0])
		}
	}
	if j.Terminal[0] {
		s.input = s.terminal
	}
	return s, nil
}

// copy starts to send everything that is read from a stream as frames of one kind, until the stream ends.
func (s *streams) copy(from io.Reader, line *console, kind byte) {
	s.copying.Add(1)
	go func() {
		defer s.copying.Done()
		buffer := make([]byte, 1<<15)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				line.send(kind, buffer[:n])
			}
			if err != nil { // of a terminal EIO: all processes have closed it
				return
			}
		}
	}()
}

func (s *streams) closeChild() {
	for _, file := range s.child {
		_ = file.Close() // a terminal is closed more than once
	}
}

// handleFrames passes input, signals and terminal sizes from the host to the command. It powers the guest off if the
// console fails.
func (s *streams) handleFrames(line *console, child int) {
	for {
		kind, payload, err := line.receive()
		if err != nil {
			powerOff() // the host has ended
		}
		switch kind {
		case '0':
			if len(payload) == 0 && s.terminal != s.input {
				_ = s.input.Close()
				continue
			}
			go func() { // concurrently: a command that does not read must still receive signals
				_, _ = s.input.Write(payload)
				line.send('A', nil)
			}()
		case 'S':
			if number, err := strconv.Atoi(string(payload)); err == nil {
				_ = syscall.Kill(child, syscall.Signal(number))
			}
		case 'W':
			if s.terminal != nil && len(payload) == 4 {
				_ = resize(s.terminal, [2]uint16{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])})
			}
		}
	}
}
